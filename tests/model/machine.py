"""Random orders of everything that can happen, drawn by hypothesis; after each of it the promises are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from model import promises
from model.cloud import CAPABILITIES
from model.processes import Fuse
from model.world import DOCUMENTS, World

_KINDS = st.sampled_from(sorted(DOCUMENTS))
_INDEX = st.integers(0, 7)
_WORKERS = st.integers(0, 1)
_GATES = st.integers(1, 7)
_INSTANCES = st.sampled_from(sorted(CAPABILITIES))
_FAULTS = st.sampled_from(
    [
        *(
            ("create", kind)
            for kind in ("lost_reply", "twin", "late", "never_boots", "boots_late", "no_capacity", "rate_limited")
        ),
        *(("terminate", kind) for kind in ("lost_reply", "stuck", "hidden", "server_error", "rate_limited")),
        ("list_owned", "server_error"),
        ("get", "server_error"),
    ]
)


class Attack(RuleBasedStateMachine):
    """Up to four jobs, two workers that are paused and killed in the middle of anything, and one that works on."""

    template: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.template)
        self.over = False

    def teardown(self) -> None:
        try:
            if not self.over:
                self.world.settle()
        finally:
            self.world.close()

    @initialize(
        kinds=st.lists(_KINDS, min_size=1, max_size=2),
        rounds=st.sampled_from([0, 0, 1, 3, 5, 7]),
        first=st.sampled_from(["", "", "twin", "late", "lost_reply"]),
    )
    def begin(self, kinds: list[str], rounds: int, first: str) -> None:
        self.world.cloud.faults["create"].append(first)
        for kind in kinds:
            self.world.submit(kind)
        self._guarded(lambda: self.world.live(rounds))

    # --- users and operators -----------------------------------------------------------------------------------

    @rule(what=st.sampled_from(["cancel", "pause", "resume", "move"]), job=_INDEX)
    def wish(self, what: str, job: int) -> None:
        self._guarded(lambda: self.world.wish(what, self._job(job)))

    @rule(worker=_WORKERS, gates=st.integers(2, 5), what=st.sampled_from(["cancel", "cancel", "pause", "move"]))
    def wish_in_the_middle_of_a_step(self, worker: int, gates: int, what: str) -> None:
        """Of the job that the worker has in its hands."""
        its = self.world.workers[worker]
        its.restart()
        self.world.nudge()
        its.begin_step()
        self._guarded(lambda: its.process.go_on(gates))
        if its.claimed is not None:
            self.world.wish(what, its.claimed)
        self._guarded(its.process.go_on)

    @rule(what=st.sampled_from(["submit", "submit", "relay", "nudge", "account"]), kind=_KINDS)
    def operate(self, what: str, kind: str) -> None:
        if what == "submit" and len(self.world.jobs) < 4:
            self.world.submit(kind)
        elif what == "relay":
            self.world.relay()
        elif what == "nudge":
            self.world.nudge()
        elif what == "account":
            self.world.change_account("theirs" if self.world.cloud.account == "ours" else "ours")

    # --- workers -----------------------------------------------------------------------------------------------

    @rule(worker=_WORKERS, gates=_GATES)
    def step(self, worker: int, gates: int) -> None:
        its = self.world.workers[worker]
        its.begin_step()
        self._guarded(lambda: its.process.go_on(gates))

    @rule(worker=_WORKERS, gates=_GATES, instance=_INSTANCES)
    def scan(self, worker: int, gates: int, instance: str) -> None:
        its = self.world.workers[worker]
        its.begin_scan(instance)
        self._guarded(lambda: its.process.go_on(gates))

    @rule(worker=_WORKERS, dies=st.booleans())
    def go_on(self, worker: int, dies: bool) -> None:
        its = self.world.workers[worker]
        if dies:
            its.restart()
        self._guarded(its.process.go_on)

    @rule(worker=_WORKERS, points=st.integers(0, 30), kind=st.sampled_from(["", "commit"]))
    def die_in_a_step(self, worker: int, points: int, kind: str) -> None:
        """Before any statement, or before or behind some commit."""
        its = self.world.workers[worker]
        its.restart()
        self.world.nudge()
        its.process.fuse = Fuse(points % 6 if kind else points, kind)
        its.begin_step()
        self._guarded(its.process.go_on)
        its.process.fuse = None
        its.restart()
        self._guarded(lambda: promises.check_histories(self.world))

    # --- time, nodes and the network ---------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, 6.0, 31.0, 65.0, 400.0]))
    def tick(self, seconds: float) -> None:
        self.world.tick(seconds)

    @rule(rounds=st.integers(1, 6), finish=st.booleans())
    def live(self, rounds: int, finish: bool) -> None:
        self._guarded(lambda: self.world.live(rounds, finish=finish))

    @precondition(lambda self: self.world.present())
    @rule(index=_INDEX, lost=st.sampled_from(["", "request", "answer", "api"]), points=st.integers(0, 12))
    def exchange(self, index: int, lost: str, points: int) -> None:
        agents = self.world.present()
        fuse = Fuse(points) if lost == "api" else None
        self._guarded(lambda: self.world.exchange(agents[index % len(agents)], lost=lost, fuse=fuse))

    @precondition(lambda self: self.world.mail)
    @rule(index=st.integers(0, 40))
    def deliver_again(self, index: int) -> None:
        self._guarded(lambda: self.world.deliver_again(-1 - index))

    @precondition(lambda self: self.world.present())
    @rule(index=_INDEX, what=st.sampled_from(["finish", "user", "node", "save", "print_line"]))
    def act(self, index: int, what: str) -> None:
        agents = self.world.present()
        agent = agents[index % len(agents)]
        if what in ("user", "node"):
            agent.fail(what)
        else:
            getattr(agent, what)()

    @precondition(lambda self: self.world.cloud.living())
    @rule(index=_INDEX, what=st.sampled_from(["lost", "partition", "glitch"]))
    def hurt(self, index: int, what: str) -> None:
        machines = self.world.cloud.living()
        machine = machines[index % len(machines)]
        if what == "lost":
            machine.lost_at = self.world.clock.now
        elif what == "partition":
            machine.partitioned = not machine.partitioned
        else:
            self.world.cloud.glitch = machine.handle

    @rule(seconds=st.sampled_from([61.0, 250.0]))
    def fall_silent(self, seconds: float) -> None:
        self._guarded(lambda: self.world.fall_silent(seconds))

    @precondition(lambda self: self.world.present())
    @rule(index=_INDEX)
    def fail_beside_one_that_is_cut_off(self, index: int) -> None:
        agents = self.world.present()
        self._guarded(lambda: self.world.fail_beside_one_that_is_cut_off(agents[index % len(agents)]))

    @rule(job=_INDEX)
    def succeed_unseen(self, job: int) -> None:
        self._guarded(lambda: self.world.succeed_unseen(self._job(job)))

    @rule(fault=_FAULTS)
    def spoil_a_call(self, fault: tuple[str, str]) -> None:
        verb, kind = fault
        self.world.cloud.faults[verb].append(kind)
        self._guarded(self.world.cloud.carry_out_late)

    @invariant()
    def every_promise_is_kept(self) -> None:
        if not self.over:
            self._guarded(self.world.check)

    def _job(self, index: int) -> str:
        return self.world.jobs[index % len(self.world.jobs)]

    def _guarded(self, work: Any) -> None:
        """What is broken is told once: nothing is brought to an end after it."""
        try:
            work()
        except BaseException:
            self.over = True
            raise


def attack(
    template: Path, *, examples: int, steps: int = 50, shrink: bool = False, numbered: int | None = None
) -> None:
    """Run the machine.

    Args:
        numbered: which orders are drawn; None: the same ones every time, as long as the machine stays what it is.

    Raises:
        Broken: a promise was broken.
    """
    machine = type("Machine", (Attack,), {"template": template})
    if numbered is not None:
        seed(numbered)(machine)
    budget = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=numbered is None,
        database=None,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        print_blob=False,
    )
    run_state_machine_as_test(machine, settings=budget)
