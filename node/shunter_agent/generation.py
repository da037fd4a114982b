"""The life of one generation on this node: prepare, start, watch, end, upload what is left, drained."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from shunter_agent.files import clean, is_full, read_json, remove_tree, write_json
from shunter_agent.gang import Gang
from shunter_agent.keeping.journal import Entry
from shunter_agent.launching.launchers import free_port, plan_processes
from shunter_agent.launching.ranks import Crew, Ready
from shunter_agent.preparing.prepare import Outcome, Preparation
from shunter_agent.preparing.resume import drop_uncommitted
from shunter_agent.processes import kill_marked
from shunter_agent.reporting.checkpoints import Rule, signatures
from shunter_agent.reporting.shipping import Shipment
from shunter_agent.reporting.verdict import blame_disk, explain_stop, judge, only_peers_lost
from shunter_agent.reporting.watch import Watch, exit_entries
from shunter_agent.shared import Place, Shared
from shunter_agent.trace import trace, trace_exception

if TYPE_CHECKING:
    from shunter_agent.muster.meeting import Meeting


class Stop(NamedTuple):
    """Why a generation is stopped. `failure_class`: the stop counts as a failure of this class."""

    reason: str
    grace_s: float
    message: str = ""
    failure_class: str | None = None


class Generation:
    """Everything here runs in the main thread. `phase` is what the service is told."""

    def __init__(self, shared: Shared, assignment: dict[str, Any], known: dict[str, Any]) -> None:
        """`known`: the checkpoint folders that were on the disk before this generation."""
        self._shared = shared
        self._assignment = assignment
        self.place = Place.of(assignment)
        self.number = self.place.generation
        self._workload: dict[str, Any] = assignment["document"]["workload"]
        self._shipment = Shipment(shared, self.place, rule_of(assignment, shared), known)
        self._gang = Gang(shared.layout, self.number)
        self._watch = Watch(shared.layout, self.number, shared.tuning, self._workload["kind"] == "training")
        self._preparation: Preparation | None = None
        self._stop: Stop | None = None
        self._failed_at: float | None = None
        self._launched_at = 0.0
        self._save_wanted = False
        self.meeting: Meeting | None = None
        """Holds the master's port, where this node is the master of several."""
        self.phase = "preparing"

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self.phase in ("preparing", "running", "stopping")

    @property
    def ranks_running(self) -> int:
        return sum(len(member.process.ranks) for member in self._gang.running)

    @property
    def grace_s(self) -> float:
        """From SIGTERM to SIGKILL when the service stops it."""
        grace = self._assignment.get("stop_grace_s")
        return 30.0 if grace is None else float(grace)

    def begin(self) -> None:
        """Prepare what has to be prepared, then start the ranks."""
        tell = partial(self._shared.post_call, self._part)
        preparation = Preparation(self._shared.layout, self._assignment, self._shared.connect, tell)
        if not preparation.parts:
            self._launch(preparation.at_once())
            return
        preparation.done = partial(self._shared.post_call, self._prepared)
        self._preparation = preparation
        preparation.start()

    def resume_ended(self, reason: str) -> None:
        """Take up a generation of an agent that died: its ranks died with it, its files are still to be sent."""
        known = self._shared.state.of(self.number)
        self.phase = "ended"
        if not known.end:
            self._shared.recorder.record_all(self._watch.rest(known.newest_point))
            self._record_end("failed", {"failure_class": "node", "reason": "agent_restarted", "message": reason})
        self._shipment.finish()

    def stop(self, stop: Stop) -> None:
        """Ask it to end; the first reason stays, the shorter grace counts."""
        if not self.alive:
            return
        self._stop = self._stop or stop
        if self.phase == "preparing":
            if self._preparation is not None:
                self._preparation.cancel()
        else:
            self._gang.stop(stop.grace_s)
        self.phase = "stopping"

    def save(self) -> None:
        """Ask our trainer for a checkpoint now. A script was never told what such a signal means."""
        self._save_wanted = self._workload["kind"] == "training"

    def kill(self) -> None:
        """End it now."""
        self.stop(Stop("released", 0.0))
        self._gang.kill()

    def show_logs(self) -> None:
        """Somebody watches the logs."""
        if self.phase != "drained":
            self._shipment.show_logs()

    def step(self) -> float:
        """Do what is due; returns the seconds after which to come again, unless something happens before."""
        tuning = self._shared.tuning
        if self.phase == "drained":
            return tuning.log_s
        if self.alive and self._gang.members:
            self._attend()
        self._shipment.step()
        if self._shipment.drained:
            self.phase = "drained"
            self._shared.recorder.record("drained", self.number, {})
        kill_due_s = self._gang.enforce()
        look_s = self._look_s()
        return look_s if kill_due_s is None else min(look_s, kill_due_s)

    def _look_s(self) -> float:
        """Sharper at first: people wait for the first sign of life."""
        tuning = self._shared.tuning
        if not self.alive:
            return 4 * tuning.look_s
        fresh = not self._watch.told and time.monotonic() - self._launched_at < tuning.eager_s
        return min(tuning.eager_look_s, tuning.look_s) if fresh else tuning.look_s

    def _part(self, part: str, status: str, message: str, facts: dict[str, Any]) -> None:
        data = {"part": part, "status": status, "message": message, "facts": facts}
        self._shared.recorder.record("prepare", self.number, data, within_s=0.0)

    def _prepared(self, outcome: Outcome) -> None:
        self._preparation = None
        if self._stop is not None:
            kill_marked(self._shared.layout.root, self.number)
            self._end_stopped(self._stop, [])
        elif outcome.ready is None:
            self._end("failed", {"failure_class": "user", "reason": "setup_failed", "message": outcome.failure})
        else:
            self._launch(outcome.ready)

    def _launch(self, ready: Ready) -> None:
        ranks = self._assignment["ranks"]
        self._let_port_go()
        port = int(ranks["master_port"]) or free_port(ranks["master_addr"])
        try:
            crew = Crew(self._assignment, self._shared.layout, ready, port)
            self._gang.start(plan_processes(crew), ready.cwd)
        except Exception as error:
            user = isinstance(error, (OSError, ValueError))  # no such program, an unknown name; else a fault of ours
            failure_class, reason = ("user", "user_error") if user else ("node", "agent_error")
            message = f"the ranks cannot be started: {error}"
            trace_exception("launch")
            self._end("failed", {"failure_class": failure_class, "reason": reason, "message": message})
            return
        self._launched_at = time.monotonic()
        self.phase = "running"

    def _attend(self) -> None:
        """Look after the gang."""
        entries: list[Entry] = []
        for member in self._gang.poll():
            entries += self._watch.last_words(member) + exit_entries(member, self.number)
        over, told_before = not self._gang.running, self._watch.told
        entries += self._watch.look(self._gang.members, final=over)
        first_sign = self._watch.told and not told_before
        self._shared.recorder.record_all(entries, within_s=0.0 if first_sign else None)
        if self._save_wanted:
            self._save_wanted = not self._gang.ask_first(signal.SIGUSR1)
        if over:
            self._over()
        elif not self._gang.stopping and any(end.failed for end in self._gang.ends):
            self._stop_the_rest()

    def _stop_the_rest(self) -> None:
        """One has failed: stop the others, at once unless its failure only blames one of them."""
        now = time.monotonic()
        self._failed_at = self._failed_at or now
        if only_peers_lost(self._gang.ends) and now - self._failed_at < self._shared.tuning.blame_s:
            return
        self.phase = "stopping"
        self._gang.stop(self._shared.tuning.fail_grace_s)

    def _over(self) -> None:
        self._gang.sweep()
        ends = self._gang.ends
        if all(end.exit_code == 0 for end in ends) and (self._stop is None or not any(end.ours for end in ends)):
            self._end("done", {"exit_code": 0, "message": self._watch.ending})
            return
        failed_first = any(end.failed and not end.ours for end in ends)
        if self._stop is not None and not failed_first:
            exit_code, message = explain_stop(ends)
            self._end_stopped(self._stop._replace(message=self._stop.message or message), ends, exit_code)
            return
        verdict = judge(ends)
        assert verdict is not None
        self._end("failed", dict(verdict._asdict()))

    def _end_stopped(self, stop: Stop, ends: list[Any], exit_code: int | None = None) -> None:
        data = {"reason": stop.reason, "message": stop.message, "exit_code": exit_code}
        if stop.failure_class is None:
            self._end("stopped", data)
        else:
            self._end("failed", {**data, "failure_class": stop.failure_class})

    def _let_port_go(self) -> None:
        if self.meeting is not None:
            self.meeting.close()

    def _end(self, type: str, data: dict[str, Any]) -> None:
        self._let_port_go()
        if type == "failed":
            data = blame_disk(data, is_full(self._shared.layout.root))
        self._record_end(type, data)
        self.phase = "ended"
        self._shipment.finish()
        trace(f"generation {self.number}: {type} {data.get('reason', '')}")

    def _record_end(self, type: str, data: dict[str, Any]) -> None:
        self._shared.recorder.record(type, self.number, data)


def rule_of(assignment: dict[str, Any], shared: Shared) -> Rule | None:
    """Which folders are checkpoints of this job."""
    return Rule.of(assignment["document"]["workload"], shared.tuning.settle_s)


def accept(shared: Shared, assignment: dict[str, Any]) -> Generation:
    """Make an assignment this node's own: it is on the disk before anything of it starts.

    Raises:
        OSError: the disk is full.
    """
    layout, number = shared.layout, int(assignment["generation"])
    rule = rule_of(assignment, shared)
    folders = (
        layout.generation(number),
        layout.logs(number),
        layout.outputs(number),
        layout.checkpoints,
        layout.inputs,
    )
    for folder in (*folders, os.path.dirname(layout.metrics(number, 0))):
        os.makedirs(folder, exist_ok=True)
    for earlier, found in shared.state.items():
        if found.drained:
            remove_tree(layout.outputs(earlier))  # uploaded; the next generation needs the room
    drop_uncommitted(layout.checkpoints, rule, assignment.get("resume"))
    known = signatures(layout.checkpoints, rule) if rule else {}
    write_json(layout.document(number), assignment["document"], durable=False)  # the assignment holds it too
    write_json(layout.assignment(number), {"assignment": clean(assignment), "known_checkpoints": known})
    return Generation(shared, assignment, known)


def recall(shared: Shared, number: int) -> Generation | None:
    """A generation that an earlier run of the agent had accepted."""
    kept = read_json(shared.layout.assignment(number))
    if kept is None:
        return None
    return Generation(shared, kept["assignment"], kept["known_checkpoints"])
