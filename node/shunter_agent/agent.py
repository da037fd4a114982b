"""The agent: obeys what the service desires of this node, and what the lease and the machine demand."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from shunter_agent.exchange.sync import Answer, Sync
from shunter_agent.exchange.uploads import Uploader
from shunter_agent.files import is_full
from shunter_agent.keeping.journal import Journal
from shunter_agent.keeping.launchfile import LaunchFile
from shunter_agent.keeping.layout import Layout
from shunter_agent.keeping.lease import Lease
from shunter_agent.keeping.recorder import Recorder
from shunter_agent.keeping.state import State
from shunter_agent.keeping.tuning import Tuning
from shunter_agent.loop import Loop
from shunter_agent.probe import boot_record, cuda_error, gpus, has_gpus
from shunter_agent.shared import Shared
from shunter_agent.trace import trace, trace_exception

if TYPE_CHECKING:
    from shunter_agent.generation import Generation
    from shunter_agent.muster.meeting import Meeting
    from shunter_agent.processes import OrphanReaper

_IDLE_S = 60.0
_FAREWELL_S = 10.0
_INTERRUPT_GRACE_S = 25.0


class Agent:
    """One a folder. All methods run in the main thread, besides those that other threads are given."""

    def __init__(self, root: str) -> None:
        """Read the launch file and open the journal; nothing is started yet.

        Raises:
            ValueError, OSError: the folder does not hold what an agent needs.
        """
        layout = Layout(root)
        tuning = Tuning.from_environment(os.environ)
        launch = LaunchFile(layout.launch)
        journal = Journal(layout.journal)
        state = State.load(layout.state, journal.journal_id, journal.records())
        self._started_at = time.monotonic()
        self._loop = Loop()
        self._sync = Sync(launch, journal, tuning, self.status, self._hear)
        self._shared = Shared(
            layout,
            launch,
            tuning,
            journal,
            state,
            Recorder(journal, state, self._sync.tell),
            Uploader("logs", launch, tuning, self._loop.post),
            Uploader("files", launch, tuning, self._loop.post, threads=tuning.uploads),
            self._loop.post,
        )
        self._lease = Lease(layout.lease, launch.lease)
        self._generations: list[Generation] = []
        """Those that are not drained, oldest first; at most the last one is alive."""
        self._newest = 0
        """The highest generation that was accepted or closed here."""
        self._next: dict[str, Any] | None = None
        """An assignment that waits for the generation before it to end."""
        self._wish = (0, 0)
        """The generation that was desired last, and how many checkpoints of it had been asked for."""
        self._meeting: Meeting | None = None
        """The gathering of the gang before its next generation."""
        self._reaper: OrphanReaper | None = None
        self._leave_by: float | None = None
        self._farewell_until: float | None = None
        """When the last uploads have had their time, once the lease is over."""
        self._power_off_at = 0.0
        self._farewell = "released"

    def run(self) -> int:
        """Until the service releases the node; returns the exit status."""
        self._loop.install()
        self._report_boot()
        self._recall()
        self._sync.start()
        import shunter_agent.generation  # noqa: F401 - while the first exchange is on its way
        from shunter_agent.processes import OrphanReaper

        if os.getpid() == 1:
            self._reaper = OrphanReaper()
        while not self._may_leave():
            wait_s = self._loop_once()
            self._loop.turn(wait_s)
        trace(self._farewell)
        return 0

    def status(self) -> dict[str, Any]:
        """What the agent does at this moment; called by the sync thread."""
        current, meeting = self._current, self._meeting
        return {
            "clock": time.time(),
            "muster": meeting.status() if meeting else None,
            "stuck": self._shared.recorder.stuck(self._shared.tuning.stuck_s if self._alive else 0.0),
            "phase": current.phase if current else self._resting,
            "generation": self._newest,
            "ranks_running": current.ranks_running if current else 0,
            "uptime_s": round(time.monotonic() - self._started_at, 3),
            "dropped": self._shared.journal.dropped,
        }

    @property
    def _current(self) -> Generation | None:
        """The newest generation, if there is anything left to do for it."""
        generations = self._generations
        return generations[-1] if generations and generations[-1].number == self._newest else None

    @property
    def _resting(self) -> str:
        return "drained" if self._newest or self._shared.state.of(0).drained else "idle"

    @property
    def _alive(self) -> Generation | None:
        return self._generations[-1] if self._generations and self._generations[-1].alive else None

    def _loop_once(self) -> float:
        """Everything that is due; returns the seconds until something is again."""
        wait_s = _IDLE_S
        try:
            self._watch_interruption()
            self._watch_lease()
            for generation in self._generations:
                wait_s = min(wait_s, generation.step())
            self._generations = [one for one in self._generations if one.phase != "drained"]
            if self._start_next():
                wait_s = 0.0
            if self._reaper is not None:
                self._reaper.reap()
            if self._shared.recorder.delayed:
                self._shared.recorder.retry()
                wait_s = 1.0
        except Exception:
            trace_exception("agent")  # the ranks would die with the agent: it goes on
            wait_s = 1.0
        deadlines = [self._lease.next_s(), 0.2 if self._leave_by else None]
        return min([wait_s, *(one for one in deadlines if one is not None)])

    # What the service says.

    def _hear(self, answer: Answer | None) -> None:
        """Called by the sync thread."""
        self._loop.post(lambda: self._forgotten() if answer is None else self._obey(answer))

    def _obey(self, answer: Answer) -> None:
        message = answer.message
        if "lease" in message:
            self._lease.renew(message["lease"] or {}, answer.asked_at)
        self._keep_journal(message)
        desired = message.get("desired") or {}
        phase = str(desired.get("phase"))
        if phase not in ("muster", "run"):
            self._end_meeting()
        act = {
            "run": self._run,
            "muster": self._muster,
            "stop": self._stop,
            "release": self._release,
            "hold": self._hold,
        }.get(phase)
        if act is not None:
            act(desired)
        if message.get("upload_logs"):
            for generation in self._generations:
                generation.show_logs()

    def _run(self, desired: dict[str, Any]) -> None:
        assignment = desired.get("assignment")
        if assignment and int(desired.get("generation") or 0) > self._newest and self._leave_by is None:
            self._next = assignment
            self._stop_alive("superseded", self._shared.tuning.fail_grace_s)
            self._start_next()
        self._heed_wish(int(desired.get("generation") or 0), int(desired.get("checkpoint") or 0))

    def _muster(self, desired: dict[str, Any]) -> None:
        """Gather with the other nodes before `generation`; what ran before that is over."""
        self._hold(desired)
        number = int(desired.get("generation") or 0)
        if number <= self._newest or self._leave_by is not None:
            return
        if self._meeting is None or self._meeting.generation != number:
            from shunter_agent.muster.meeting import Meeting

            self._end_meeting()
            self._meeting = Meeting(number, self._shared.tuning, lambda: self._sync.tell(0.0))
            self._sync.tell(0.0)
        self._meeting.call(desired.get("peers") or [])

    def _end_meeting(self) -> None:
        meeting, self._meeting = self._meeting, None
        if meeting is not None:
            meeting.close()

    def _heed_wish(self, number: int, wish: int) -> None:
        """Have a checkpoint saved each time that the wish grows; the first one of a generation asks for nothing."""
        before, self._wish = self._wish, (number, wish)
        if before[0] == number and wish > before[1] and self._alive is not None and self._alive.number == number:
            self._alive.save()

    def _stop(self, desired: dict[str, Any]) -> None:
        self._next = None
        number = int(desired.get("generation") or 0)
        if self._alive is not None:
            self._stop_alive(desired.get("reason") or "stopped", self._alive.grace_s)
        elif number > self._newest or not self._newest:
            self._close(number)

    def _hold(self, desired: dict[str, Any]) -> None:
        """Run nothing; but a generation is only stopped by a service that has moved beyond it."""
        if int(desired.get("generation") or 0) > self._newest:
            self._stop_alive(desired.get("reason") or "held", self._shared.tuning.fail_grace_s)

    def _release(self, desired: dict[str, Any]) -> None:
        self._next = None
        for generation in self._generations:
            generation.kill()
        if self._leave_by is None:
            self._leave(0.0 if desired.get("reason") == "now" else _FAREWELL_S)

    def _forgotten(self) -> None:
        """The service does not know this node: nothing that runs is stopped for it."""
        if self._alive is None and self._leave_by is None:
            trace("the service does not know this node, and nothing runs here")
            self._leave(0.0)

    # Generations.

    def _start_next(self) -> bool:
        """Begin the assignment that waits, if nothing runs; whether it did."""
        if self._next is None or self._alive is not None:
            return False
        from shunter_agent.generation import accept
        from shunter_agent.reporting.verdict import blame_disk

        assignment, self._next = self._next, None
        self._newest = int(assignment["generation"])
        try:
            generation = accept(self._shared, assignment)
            generation.meeting = self._settle_meeting(assignment)
            generation.begin()
        except Exception as error:
            trace_exception("assignment")
            data = {"failure_class": "node", "reason": "agent_error", "message": f"the agent cannot start it: {error}"}
            full = is_full(self._shared.layout.root)
            self._shared.recorder.record("failed", self._newest, blame_disk(data, full))
            self._shared.recorder.record("drained", self._newest, {})
            return True
        self._generations.append(generation)
        return True

    def _settle_meeting(self, assignment: dict[str, Any]) -> Meeting | None:
        """The gathering has led to this assignment: it holds the master's port until its ranks start."""
        meeting, self._meeting = self._meeting, None
        if meeting is not None:
            meeting.settle(as_master=meeting.generation == self._newest and assignment["ranks"]["node_rank"] == 0)
        return meeting

    def _stop_alive(self, reason: str, grace_s: float, failure_class: str | None = None, message: str = "") -> None:
        from shunter_agent.generation import Stop

        if self._alive is not None:
            self._alive.stop(Stop(reason, grace_s, message, failure_class))

    def _close(self, number: int) -> None:
        """The service stops a generation that never came here: say that nothing of it runs, once."""
        if self._shared.state.of(number).drained:
            return
        self._newest = max(self._newest, number)
        self._shared.recorder.record("stopped", number, {"reason": "not_started", "message": "it never started here"})
        self._shared.recorder.record("drained", number, {})

    def _recall(self) -> None:
        """Take up what an earlier run of the agent left."""
        state, layout = self._shared.state, self._shared.layout
        numbers = {number for number, _ in state.items() if number}
        kept = os.path.dirname(layout.generation(0))
        if os.path.isdir(kept):
            numbers |= {int(name) for name in os.listdir(kept) if name.isdigit()}
        if not numbers:
            return
        from shunter_agent.generation import recall
        from shunter_agent.processes import kill_marked

        strays = kill_marked(layout.root)
        trace(f"taking up generations {sorted(numbers)}; {strays} processes of theirs were still there")
        self._newest = max(numbers)
        for number in sorted(numbers):
            generation = None if state.of(number).drained else recall(self._shared, number)
            if generation is not None:
                generation.resume_ended("the agent was restarted; its ranks had ended with it")
                self._generations.append(generation)

    # What the machine and the lease demand.

    def _watch_interruption(self) -> None:
        """SIGTERM: the machine goes away; a second one: at once."""
        if self._loop.terminations == 0:
            return
        if self._loop.terminations > 1:
            for generation in self._generations:
                generation.kill()
        alive = self._alive
        if alive is not None:
            grace_s = min(alive.grace_s, _INTERRUPT_GRACE_S)
            self._stop_alive("interrupted", grace_s, "node", "the machine asked the agent to stop")
        elif self._leave_by is None:
            self._leave(_FAREWELL_S)

    def _watch_lease(self) -> None:
        expired = self._lease.expired()
        if not expired and not self._lease.stop_due():
            return
        alive = self._alive
        if alive is not None:
            message = "the service was silent for longer than the lease" if expired else "the time or budget is used up"
            self._stop_alive("lease_expired", alive.grace_s, message=message)
        elif expired and self._shared.launch.ends_machine:
            self._power_off()

    def _power_off(self) -> None:
        """After the last uploads, or when they take too long."""
        now = time.monotonic()
        if self._farewell_until is None:
            self._farewell_until = now + self._shared.tuning.farewell_s
        if now < self._power_off_at or (now < self._farewell_until and self._generations):
            return
        self._power_off_at = now + _IDLE_S
        self._end_machine()

    def _end_machine(self) -> None:
        from shunter_agent import processes

        processes.power_off(self._shared.launch.power_off or self._shared.tuning.power_off)

    # Keeping the journal, coming and going.

    def _report_boot(self) -> None:
        def report(found: list[dict[str, Any]], cuda: str = "") -> None:
            self._shared.recorder.record("boot", 0, boot_record(found, self._shared.layout.root, cuda))

        def look() -> None:
            self._shared.post_call(report, gpus(), cuda_error())

        if has_gpus():
            threading.Thread(target=look, daemon=True).start()
        else:
            report([])

    def _keep_journal(self, message: dict[str, Any]) -> None:
        shared = self._shared
        lost = message.get("journal_lost")
        if not lost and not shared.journal.worth_cutting(shared.tuning.journal_bytes):
            return
        try:
            shared.state.forget(self._newest)
            shared.state.save(shared.layout.state, shared.journal.journal_id)
            if lost:
                trace("the service has records that the disk lost: the journal begins anew")
                shared.journal.begin_anew()
            else:
                shared.journal.compact()
        except OSError as error:
            trace(f"the journal cannot be cut: {error}")

    def _leave(self, within_s: float) -> None:
        self._leave_by = time.monotonic() + within_s
        self._sync.tell(0.0)

    def _may_leave(self) -> bool:
        """Once told to go: when everything is told, or nobody listens."""
        if self._leave_by is None:
            return False
        if time.monotonic() >= self._leave_by:
            return True
        return self._alive is None and not self._generations and not self._shared.journal.pending
