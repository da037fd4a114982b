"""The one training loop. It knows no strategy, no model and no data, only their interfaces."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shunter_schemas.training import TrainingCheckpoint
from torch import Tensor

from shunter_trainer.checkpoint.save import Position, Saver
from shunter_trainer.data.stream import Micro, Stream
from shunter_trainer.evaluation import Evaluator
from shunter_trainer.guards.hang import HangWatchdog
from shunter_trainer.guards.stop import Wishes
from shunter_trainer.measuring.phases import BACKWARD, DATA, FORWARD, OPTIMIZER
from shunter_trainer.optim.schedules import Factor
from shunter_trainer.oversight import Oversight
from shunter_trainer.pace import Notes, Pace
from shunter_trainer.reports import Reports
from shunter_trainer.strategies.base import Strategy

_SALVAGE_S = 10.0


@dataclass(frozen=True, slots=True)
class Course:
    """What a training is to do, as plain numbers."""

    total_steps: int
    global_size: int
    tokens_per_sample: int
    factor: Factor | None
    """Share of the peak learning rate by step; None: it stays as the optimizer has it."""
    clip_norm: float | None
    checkpoint: TrainingCheckpoint
    evaluate_every: int | None


@dataclass(frozen=True, slots=True)
class Crew:
    """Those who do it."""

    strategy: Strategy
    stream: Stream
    evaluator: Evaluator | None
    saver: Saver
    reports: Reports
    watchdog: HangWatchdog
    wishes: Wishes
    pace: Pace
    oversight: Oversight
    seed_step: Callable[[int], None]
    """Seeds dropout and the like for a step on this rank."""


class Loop:
    """Runs a training from `position` to its last step."""

    def __init__(self, course: Course, crew: Crew, start: Position, told: Mapping[str, float] | None = None) -> None:
        """`told`: goes into the first point."""
        self._course = course
        self._crew = crew
        self._start = start
        self._saved_step = start.step
        self._phases = crew.oversight.phases
        self._ending: str | None = None
        self._values: dict[str, float] = dict(told or {})
        self._sent_lr: float | None = None
        self._blocked_s: float | None = None
        self._stop_agreed = self._save_agreed = False
        self._began = self._saved_at = time.monotonic()
        self._next_milestone = self._milestone_after(start.step)
        crew.oversight.recall(start.memory)

    def run(self) -> bool:
        """True when the training is complete, False when it was stopped on request. Its last checkpoint is saved."""
        try:
            complete = self._run()
            self._end_trace()
            with self._crew.watchdog.slow_phase("checkpoint"):
                self._crew.saver.wait()
        except BaseException:
            self._crew.saver.salvage(_SALVAGE_S)
            raise
        if self._ending is not None:
            self._crew.reports.ending(self._ending)
        return complete

    def _run(self) -> bool:
        for step in range(self._start.step + 1, self._course.total_steps + 1):
            self._advance(step)
            self._look(step)
            if self._ending is not None:
                return True
            if self._stop_agreed and step < self._course.total_steps:
                return False
        return True

    def _advance(self, step: int) -> None:
        """One optimizer step."""
        crew, course = self._crew, self._course
        strategy, phases = crew.strategy, self._phases
        if crew.oversight.tracer is not None:
            self._trace(step)
        phases.begin()
        micros = crew.stream.next_step()
        phases.mark(DATA)
        crew.seed_step(step)
        loss = self._learn(micros[0], 1) if len(micros) == 1 else self._accumulate(micros)
        measured = step >= crew.pace.next_look or step >= self._next_milestone
        factor = course.factor(step) if course.factor else None
        norm = strategy.step(factor, course.clip_norm, measured=measured)
        phases.end(OPTIMIZER)
        crew.pace.note(loss, norm)
        crew.watchdog.beat()

    def _accumulate(self, micros: Sequence[Micro]) -> Tensor:
        with self._crew.strategy.hold_gradients():
            loss = self._learn(micros[0], len(micros))
            for micro in micros[1:-1]:
                loss = loss + self._learn(micro, len(micros))
        return loss + self._learn(micros[-1], len(micros))

    def _learn(self, micro: Micro, count: int) -> Tensor:
        loss = self._crew.strategy.compute(micro.batch)
        self._phases.mark(FORWARD)
        if micro.weight is not None:
            loss = loss * micro.weight
        elif count > 1:
            loss = loss / count
        self._crew.strategy.backward(loss)
        self._phases.mark(BACKWARD)
        return loss.detach()

    def _trace(self, step: int) -> None:
        tracer, began = self._crew.oversight.tracer, time.perf_counter()
        with self._crew.watchdog.slow_phase("trace"):
            if tracer is not None and (told := tracer.before(step)) is not None:
                self._crew.reports.say(told)
        self._crew.pace.leave_out(time.perf_counter() - began)

    def _end_trace(self) -> None:
        tracer = self._crew.oversight.tracer
        if tracer is not None and (told := tracer.close()) is not None:
            self._crew.reports.say(told)

    def _look(self, step: int) -> None:
        """When it is time to: compare notes with the other ranks, and do what was agreed on."""
        pace = self._crew.pace
        if pace.waiting:
            self._publish(self._hear())
        acts = step >= self._next_milestone or self._stop_agreed or self._save_agreed
        if acts or step >= pace.next_look:
            wishes = self._crew.wishes
            self._sent_lr = self._crew.strategy.peak_lr  # read now: by the time of the answer a scheduler moved it on
            pace.send(step, wishes.stop, wishes.take_save() or self._save_is_due())
            if acts or pace.steps_are_slow:
                self._hear()
                self._act(step)

    def _act(self, step: int) -> None:
        """Evaluate, tell and save, as far as this step asks for it."""
        began = time.perf_counter()
        course = self._course
        at_end = step == course.total_steps
        saves = at_end or self._stop_agreed or self._save_agreed or _is_multiple(step, course.checkpoint.every_steps)
        evaluated = self._evaluate(step, at_end, saves)
        self._values.update(evaluated)
        self._ending = None if at_end else self._crew.oversight.ending(step, evaluated)
        saves = saves or self._ending is not None
        values = self._publish(step)
        if saves:
            self._save(step, values)
        self._next_milestone = self._milestone_after(step)
        self._crew.pace.leave_out(time.perf_counter() - began)

    def _hear(self) -> int:
        """Read the notes that are on their way; the step that they are about."""
        notes = self._crew.pace.read()
        if (warning := self._crew.oversight.check(notes, self._crew.strategy)) is not None:
            self._crew.reports.warning(notes.step, warning)
        self._crew.watchdog.pace(notes.step_s)
        self._stop_agreed |= notes.stop
        self._save_agreed |= notes.save
        self._values.update(self._measured(notes))
        return notes.step

    def _measured(self, notes: Notes) -> dict[str, float]:
        course = self._course
        values = {"loss": notes.losses[-1], "step_time_s": notes.step_s}
        if notes.norms[-1] is not None:
            values["grad_norm"] = notes.norms[-1]
        if self._blocked_s is not None:
            values["checkpoint_blocked_s"], self._blocked_s = self._blocked_s, None
        if self._sent_lr is not None:
            values["lr"] = self._sent_lr * (course.factor(notes.step) if course.factor else 1.0)
        if notes.step_s > 0:
            values["samples_per_s"] = course.global_size / notes.step_s
            if course.tokens_per_sample:
                values["tokens_per_s"] = values["samples_per_s"] * course.tokens_per_sample
        return values | self._crew.oversight.measured(self._crew.strategy, values.get("tokens_per_s"))

    def _publish(self, step: int) -> Mapping[str, float]:
        values, self._values = self._values, {}
        total, done = self._course.total_steps, step - self._start.step
        eta_s = (time.monotonic() - self._began) / done * (total - step) if done else None
        self._crew.reports.point(step, values, total, eta_s)
        self._crew.reports.progress(step, total, values, eta_s)
        return values

    def _evaluate(self, step: int, at_end: bool, saves: bool) -> dict[str, float]:
        """Where the document asks for it, and before a save whose rank among the others it decides."""
        evaluator, best_by = self._crew.evaluator, self._course.checkpoint.keep_best
        decides = saves and best_by is not None and best_by.startswith("val_") and not self._stop_agreed
        if evaluator is None or not (at_end or decides or _is_multiple(step, self._course.evaluate_every)):
            return {}
        return evaluator.run(self._crew.strategy, self._crew.watchdog.beat)

    def _save(self, step: int, values: Mapping[str, float]) -> None:
        self._save_agreed = False
        if step == self._saved_step:
            return
        if not self._crew.oversight.healthy:
            self._crew.reports.say(f"step {step}: not saved, since its loss or gradients are not finite")
            return
        worth_keeping = {name: value for name, value in values.items() if name == "loss" or name.startswith("val_")}
        passed = (step - self._start.step) * self._course.global_size
        memory = {**self._crew.strategy.memory(), **self._crew.oversight.memory()}
        position = replace(self._start, step=step, samples_seen=self._start.samples_seen + passed, memory=memory)
        with self._crew.watchdog.slow_phase("checkpoint"):
            self._crew.saver.save(self._crew.strategy.state(), position, worth_keeping)
        self._blocked_s = self._crew.saver.blocked_s
        self._saved_step, self._saved_at = step, time.monotonic()

    def _save_is_due(self) -> bool:
        every_s = self._course.checkpoint.every_s
        return every_s is not None and time.monotonic() - self._saved_at >= every_s

    def _milestone_after(self, step: int) -> int:
        """The next step at which something is evaluated or saved for certain."""
        intervals = (self._course.checkpoint.every_steps, self._course.evaluate_every)
        following = [(step // every + 1) * every for every in intervals if every]
        return min([*following, max(self._course.total_steps, step + 1)])


def _is_multiple(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0
