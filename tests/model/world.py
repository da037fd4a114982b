"""Everything at once: the real store and the real steps, a model of the cloud, of agents and of the network between."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from shunter_schemas.ids import new_id
from shunter_schemas.job import load_job
from shunter_schemas.node_sync import Phase, SyncAnswer, SyncRequest
from shunter_schemas.states import NodeState
from shunter_store.errors import Conflict
from shunter_store.job import due, jobs, outbox, wishes
from shunter_store.job.jobs import JobRow
from shunter_store.job.lifecycle import is_terminal
from shunter_store.node import ledger, sync
from shunter_store.node.ledger import NodeRow
from shunter_store.tables import nodes
from sqlalchemy import Connection, select

from model import promises
from model.agents import Agent
from model.clock import Clock
from model.cloud import CAPABILITIES, USD_PER_HOUR, Cloud, Machine
from model.database import ModelDatabase
from model.history import History, by_token
from model.processes import Crash, Fuse, Process, acting_as
from model.verdicts import require
from model.workers import Worker

DOCUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "gang": {"resources": {"nodes": 2, "gpus_per_node": 1}, "placement": {"providers": ["sim"]}},
    "capped": {
        "resources": {"gpus": 1},
        "placement": {"providers": ["sim"]},
        "limits": {"max_cost_usd": 3.0},
    },
    "shared": {"resources": {"cpu_processes": 2}, "placement": {"providers": ["box"]}},
}
_ROUNDS_AT_MOST: Final = 250
_ACCOUNTS: Final = select(nodes.c.account).where(nodes.c.state != NodeState.GONE).distinct()
"""Of the rows that are open."""


class World:
    """Make it with an empty database; `close` it."""

    def __init__(self, template: Path) -> None:
        self.patch = pytest.MonkeyPatch()
        self.folder = Path(tempfile.mkdtemp(dir=template.parent))
        shutil.copyfile(template, self.folder / "shunter.db")
        self.clock = Clock()
        self.clock.rule_workers(self.patch)
        self.loop = asyncio.new_event_loop()
        self.database = ModelDatabase(self.folder / "shunter.db", self.clock)
        self.history = History(self)
        self.history.watch_steps(self.patch)
        self.cloud = Cloud(self.clock, self.history.note_create, self.history.note_terminate)
        self.instances: tuple[str, ...] = tuple(CAPABILITIES)
        self.workers = [Worker(self, self.loop, f"worker-{number}") for number in range(3)]
        """The last one is never hurt by itself: it does what the others leave."""
        self.jobs: list[str] = []
        self.cancelled: set[str] = set()
        self.agents: dict[str, Agent] = {}
        self.mail: list[tuple[str, SyncRequest]] = []
        """Requests that arrive once more, some day."""
        self._api = Process(self.loop, "api")
        self._steps_that_broke = _Breakages()
        logging.getLogger("shunter_workers.stepping").addHandler(self._steps_that_broke)
        for name in (
            "shunter_workers",
            "shunter_providers",
        ):  # faults are what this is about: nobody has to read of them
            self.patch.setattr(logging.getLogger(name), "propagate", False)
            self.patch.setattr(logging.getLogger(name), "handlers", [logging.NullHandler()])

    def close(self) -> None:
        """Everything that it holds."""
        for worker in self.workers:
            worker.process.kill()
        logging.getLogger("shunter_workers.stepping").removeHandler(self._steps_that_broke)
        self.patch.undo()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self.database.close()
        shutil.rmtree(self.folder)

    def check(self) -> None:
        """Hold everything against the promises."""
        if self.history.first is not None:
            raise self.history.first
        require(1, not self._steps_that_broke.found, f"steps broke: {self._steps_that_broke.found}")
        promises.check_always(self)

    # --- what users do -------------------------------------------------------------------------------------------

    def submit(self, kind: str, **parts: Any) -> str:
        """A job that was answered 201. `parts` of the document take the place of the kind's."""
        spec = load_job(
            {
                "version": "1",
                "name": kind,
                "workload": {"kind": "script", "launcher": "plain", "command": ["true"]},
                "recovery": {"node_recoveries": 1000, "user_restarts": 1},
                **DOCUMENTS[kind],
                **parts,
            }
        ).model_dump(mode="json")
        job_id = new_id("job")
        given: dict[str, Any] = {"project": "p", "created_by": "t", "name": kind, "labels": {}, "priority": 2}
        self.database.write(lambda conn: jobs.insert(conn, job_id=job_id, spec=spec, spec_text="{}", **given))
        self.jobs.append(job_id)
        return job_id

    def wish(self, what: str, job_id: str) -> None:
        """Cancel, pause, resume or move a job; refused where it makes no sense."""
        asks: dict[str, Callable[..., JobRow]] = {
            "cancel": wishes.request_cancel,
            "pause": wishes.request_pause,
            "resume": wishes.request_resume,
            "move": lambda conn, id_, by: wishes.request_move(conn, id_, _elsewhere, by=by),
        }
        try:
            job = self.database.write(lambda conn: asks[what](conn, job_id, by="user"))
        except Conflict:
            return
        if what == "cancel" and job.outcome is None:
            self.cancelled.add(job_id)

    def nudge(self) -> None:
        """Every job is woken once more than there is a cause for."""
        self.database.write(lambda conn: due.wake(conn, self.jobs))

    # --- nodes and the network -----------------------------------------------------------------------------------

    def tick(self, seconds: float) -> None:
        """Time passes; machines boot, and agents that are alone look at their leases."""
        self.clock.tick(seconds)
        for machine in self.cloud.living():
            if machine.handle not in self.agents and self.clock.now >= machine.boots_at:
                self._boot(machine)
        for agent in self.present():
            agent.watch_lease(self.clock.now)

    def present(self) -> list[Agent]:
        """Agents on machines that exist, and that did not go."""
        now = self.clock.now
        return [agent for agent in self.agents.values() if agent.machine.exists(now) and not agent.left]

    def exchange(self, agent: Agent, *, lost: str = "", fuse: Fuse | None = None) -> None:
        """One exchange. `lost`: the `request` or the `answer` is; `fuse`: the API dies in the middle of it."""
        asked_at, request = self.clock.now, agent.request()
        self.mail.append((agent.machine.launch["sync_token"], request))
        if lost == "request" or agent.machine.partitioned:
            return
        answer = self._delivered(agent.machine.launch["sync_token"], request, fuse)
        if answer is not None:
            self._hold_answer(agent, answer)
            if lost != "answer":
                agent.hear(answer, asked_at)

    def deliver(self, agent: Agent, request: SyncRequest) -> None:
        """A request that was long under way arrives."""
        self._delivered(agent.machine.launch["sync_token"], request, fuse=None)

    def deliver_again(self, index: int) -> None:
        """A request that was sent some time ago arrives, perhaps for the second time."""
        if self.mail:
            self._delivered(*self.mail[index % len(self.mail)], fuse=None)

    def _delivered(self, token: str, request: SyncRequest, fuse: Fuse | None) -> SyncAnswer | None:
        def fold(conn: Connection) -> SyncAnswer | None:
            node = sync.node_by_sync_token(conn, token)
            return None if node is None else sync.ingest(conn, node, request, now=self.clock.moment).answer()

        self._api.fuse = fuse
        with acting_as(self._api):
            try:
                return self.database.write(fold)
            except Crash:
                return None

    def _hold_answer(self, agent: Agent, answer: SyncAnswer) -> None:
        """What the service grants is written down before it is sent, and ends."""
        row, spent, rate = self.database.read(lambda conn: _of_machine(conn, agent.machine))
        if answer.desired.phase is not Phase.RUN or not CAPABILITIES[agent.machine.instance].bills:
            return
        lease_s, stop_s = answer.lease.expires_in_s, answer.lease.stop_in_s
        require(8, lease_s is not None, f"{agent.machine.handle} may run for ever on its own")
        granted = row.lease_granted_until
        written = granted is not None and granted.timestamp() >= self.clock.moment.timestamp() + (lease_s or 0.0) - 1.0
        require(8, written, f"{agent.machine.handle} was granted {lease_s} s, the ledger says {granted}")
        cap = self._cap_usd(row.job_id)
        if cap is not None:
            most = spent + rate * (stop_s if stop_s is not None else 1e9) / 3600
            require(7, most <= cap, f"{agent.machine.handle} may spend {most:.2f} USD of {cap} on its own")

    def _cap_usd(self, job_id: str) -> float | None:
        job = self.database.read(lambda conn: jobs.get(conn, job_id))
        assert job is not None
        return load_job(job.spec).limits.max_cost_usd

    def _boot(self, machine: Machine) -> None:
        labels = machine.launch["labels"]
        agent = Agent(
            machine, self.history.note_start, labels["job"], int(labels["rank"]), journal=f"journal-{machine.handle}"
        )
        lease_s = machine.launch["lease"]["expires_in_s"]
        if lease_s is not None:
            agent.lease_until = self.clock.now + lease_s
        agent.begin()
        self.agents[machine.handle] = agent

    def fall_silent(self, seconds: float) -> None:
        """Nobody hears of any node for a while; then all of them are back."""
        self.tick(seconds)
        self._let(Worker.begin_sweep)
        self.step_all()
        for agent in self.present():
            self.exchange(agent)

    def fail_beside_one_that_is_cut_off(self, agent: Agent) -> None:
        """A node fails while another one of its gang runs on and hears nothing for a while."""
        others = [one for one in self.present() if one.job_id == agent.job_id and one is not agent]
        for other in others:
            other.machine.partitioned = True
        agent.fail("node")
        self.live(16)
        for other in others:
            other.machine.partitioned = False

    def succeed_unseen(self, job_id: str) -> None:
        """All ranks are done and say so; then the machines vanish, and scans see that before any step looks."""
        for agent in self.present():
            if agent.job_id == job_id:
                agent.finish()
                self.exchange(agent)
                agent.machine.lost_at = self.clock.now
        for _ in range(3):
            self.tick(6.0)
            self._let(lambda worker: worker.begin_scan("sim"))

    # --- the course of things --------------------------------------------------------------------------------------

    def relay(self) -> None:
        """Hints leave the database; what becomes of them is anybody's guess."""
        ids = [row.id for row in self.database.read(lambda conn: outbox.take(conn, 100))]
        self.database.write(lambda conn: outbox.delete(conn, ids))

    def live(self, rounds: int, *, finish: bool = False, tick_s: float = 2.0) -> None:
        """Things take their course: the last worker steps and scans, nodes report."""
        for _ in range(rounds):
            self.tick(tick_s)
            self.relay()
            self._let(Worker.begin_sweep)
            self.step_all()
            for agent in self.present():
                self._work(agent, finish=finish and agent.job_id not in self.cancelled)
                self.exchange(agent)
            self.step_all()
            for instance in self.instances:
                self._let(partial(Worker.begin_scan, instance=instance))
            self.check()

    def step_all(self) -> None:
        """Whatever is due now is stepped."""
        for _ in range(60):
            if not self.database.read(due.count_due):
                return
            self._let(Worker.begin_step)

    def _let(self, begin: Callable[[Worker], None]) -> None:
        worker = self.workers[-1]
        worker.process.go_on()
        begin(worker)
        worker.process.go_on()
        if worker.process.crashed:
            worker.restart()

    def _work(self, agent: Agent, *, finish: bool) -> None:
        if agent.running is None:
            return
        if agent.offset == 0:
            agent.report_up()
        elif finish and agent.offset >= 20:
            agent.finish()
            return
        agent.print_line()
        agent.measure()
        if agent.offset % 20 == 0:
            agent.save()

    def settle(self) -> None:
        """Whoever was paused goes on, and everything comes to its end; then nothing may be left. Faults that were in
        store for calls still strike them."""
        self._heal()
        for round_ in range(_ROUNDS_AT_MOST):
            self.live(1, finish=True, tick_s=4.0 if round_ < 30 else 15.0 if round_ < 80 else 60.0)
            if round_ % 12 == 11 and self._is_elsewhere():
                self.change_account("theirs" if self.cloud.account == "ours" else "ours")
            if self.is_over():
                break
        promises.check_end(self)

    def _heal(self) -> None:
        for worker in self.workers:
            worker.process.go_on()
        self.cloud.sent.clear()
        self.cloud.glitch = ""
        if self.cloud.account != "ours":
            self.change_account("ours")
        for machine in self.cloud.machines.values():
            machine.partitioned = False
        for job_id in self.jobs:
            self.wish("resume", job_id)

    def change_account(self, account: str) -> None:
        """The operator gives other credentials, and restarts the workers."""
        self.cloud.account = account
        for worker in self.workers:
            worker.restart()

    def _is_elsewhere(self) -> bool:
        """Whether another account has, or may have, something of ours."""
        accounts = self.database.read(lambda conn: set(conn.execute(_ACCOUNTS).scalars()))
        accounts |= {machine.account for machine in self.cloud.living()}
        return bool(accounts - {self.cloud.account})

    def change_instances(self, *names: str) -> None:
        """The operator changes which providers there are, and restarts the workers."""
        self.instances = names
        for worker in self.workers:
            worker.restart()

    def is_over(self) -> bool:
        """Whether every job has ended, and nothing of any is left."""

        def look(conn: Connection) -> bool:
            rows = conn.execute(_ACCOUNTS).all()
            states = [job.state for job_id in self.jobs if (job := jobs.get(conn, job_id)) is not None]
            return not rows and all(is_terminal(state) for state in states)

        return self.database.read(look) and not self.cloud.living()


def _elsewhere(job: JobRow) -> Mapping[str, Any]:
    """Anywhere, or in the only region that there is."""
    regions = job.spec["placement"]["regions"]
    there = "eu-1" if job.spec["placement"]["providers"] == ["sim"] else "here"
    return {"placement": {**job.spec["placement"], "regions": [] if regions else [there]}}


def _of_machine(conn: Connection, machine: Machine) -> tuple[NodeRow, float, float]:
    """Its row, what its job has cost, and what all of the job's nodes cost an hour."""
    row = by_token(conn, machine.token)
    assert row is not None
    live = ledger.of_job(conn, row.job_id, live_only=True)
    return row, ledger.ledger_cost(conn, row.job_id), USD_PER_HOUR * len(live)


class _Breakages(logging.Handler):
    """A step that raises is tried again for ever: it must not happen."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, AssertionError):
            raise error
        self.found.append(f"{record.getMessage()}: {error!r}")
