"""Metric points and progress: gathered from the ranks' metrics files or prints, recorded in batches."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

from shunter_agent.files import cut
from shunter_agent.keeping.journal import Entry
from shunter_agent.keeping.tuning import Tuning
from shunter_agent.reporting.tails import LineTail

if TYPE_CHECKING:
    from shunter_agent.reporting.prints import Printed

POINTS_PER_RECORD = 64
MOST_WARNINGS = 100
NAMES_IN_PROGRESS = 100
LARGEST_STEP = 1 << 53
_OF_THE_POINT = frozenset({"step", "total_steps", "eta_s", "at", "event"})


class Feed:
    """The job's points: those of rank 0."""

    def __init__(self, tuning: Tuning) -> None:
        self._interval_s = tuning.metrics_s
        self._points: list[dict[str, Any]] = []
        self._progress: dict[str, Any] | None = None
        self._recorded_at = -math.inf
        self._last_step: int | None = None
        self._newest: dict[str, float] = {}
        self._begins_behind: int | None = None
        self.total_steps: int | None = None

    def begin_behind(self, step: int) -> None:
        """Points up to the next one of this step were recorded before, and are passed over."""
        self._begins_behind = step

    def add(self, found: dict[str, Any]) -> None:
        """Take one line `{"step": …, <name>: <finite number>, …}`; what is not usable in it is left out."""
        step = _step(found.get("step"))
        if step is None:
            return
        total, eta_s, at = _step(found.get("total_steps")), _number(found.get("eta_s")), _number(found.get("at"))
        numbers = ((name, _number(value)) for name, value in found.items() if name not in _OF_THE_POINT)
        values = {name: value for name, value in numbers if value is not None}
        self.total_steps = total if total is not None else self.total_steps
        if self._begins_behind is not None:
            if values and step == self._begins_behind:
                self._begins_behind = None
            return
        if values:
            self._points.append({"step": step, "at": time.time() if at is None else at, "values": values})
        elif step == self._last_step:
            return
        self._last_step = step
        self._newest = dict([*self._newest.items(), *values.items()][-NAMES_IN_PROGRESS:])
        self._progress = {"step": step, "total_steps": self.total_steps, "values": self._newest, "eta_s": eta_s}

    @property
    def step(self) -> int | None:
        """The newest step."""
        return self._last_step

    def due(self, generation: int, final: bool = False) -> list[Entry]:
        """The records to write now: none before the interval is over, unless this is the end."""
        now = time.monotonic()
        if self._progress is None and not self._points:
            return []
        if not final and now - self._recorded_at < self._interval_s:
            return []
        self._recorded_at = now
        points, progress = self._points, self._progress
        self._points, self._progress = [], None
        batches = [points[start : start + POINTS_PER_RECORD] for start in range(0, len(points), POINTS_PER_RECORD)]
        entries = [Entry("metrics", generation, {"points": batch}) for batch in batches]
        return entries + ([Entry("progress", generation, progress)] if progress else [])


class RankTail:
    """One rank's metrics file: its points, and the events by which it says that it is up, warns, or how it ends."""

    def __init__(self, path: str) -> None:
        self._lines = LineTail(path)
        self.up = False
        self.failure: dict[str, Any] = {}
        self.ending = ""
        """How a training ended that succeeded before its last step."""
        self._warnings: list[dict[str, Any]] = []
        self._warned = 0
        self._trials: list[dict[str, Any]] = []

    def read(self, feed: Feed | None, final: bool = False) -> bool:
        """Read what is new; points go to the feed if there is one. Returns whether there was any usable line."""
        lines = self._lines.read_all() if final else self._lines.read()
        return any([self._take(line, feed) for line in lines])  # noqa: C419 - every line has to be taken

    def take_warnings(self) -> list[dict[str, Any]]:
        """What the program warned of since the last call."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def take_trials(self) -> list[dict[str, Any]]:
        """What the trainer said of the micro-batch that it tried, once."""
        trials, self._trials = self._trials, []
        return trials

    def _take(self, line: str, feed: Feed | None) -> bool:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return False
        if not isinstance(found, dict):
            return False
        if found.get("event") == "up":
            self.up = True
        elif found.get("event") == "failure":
            self.failure = found
        elif found.get("event") == "done":
            self.ending = cut(str(found.get("message") or ""))
        elif found.get("event") == "warning":
            self._warn(found)
        elif found.get("event") == "micro_batch":
            self._trials = [{name: value for name, value in found.items() if name != "event"}]
        elif feed is not None and "step" in found:
            feed.add(found)
        return True

    def _warn(self, found: dict[str, Any]) -> None:
        if self._warned < MOST_WARNINGS:
            self._warned += 1
            message = cut(str(found.get("message") or ""))
            self._warnings.append({"at_step": _step(found.get("at_step")), "message": message})


class PrintTail:
    """Rank 0's prints, read as long as its metrics file stays empty."""

    def __init__(self, stdout: str, stderr: str) -> None:
        # Bars go to stderr, a step's values to stdout once its bar has moved: so the bars are read first.
        self._tails = (LineTail(stderr), LineTail(stdout))
        self._bar: int | None = None
        self._total: int | None = None
        self._proven = False

    def read(self, feed: Feed, final: bool = False) -> None:
        """Read what is new, but never more than the newest MiB."""
        from shunter_agent.reporting.prints import parse

        for tail in self._tails:
            tail.skip_to(1 << 20)
            for line in tail.read_all() if final else tail.read():
                found = parse(line)
                if found is None:
                    continue
                if not found.values and not self._training_bar(found.step, found.total_steps):
                    continue
                step = self._step_of(found, feed.step or 0)
                feed.add({**found.values, "step": step, "total_steps": found.total_steps})

    def _step_of(self, found: Printed, newest: int) -> int:
        if found.step is not None:
            return found.step
        if self._bar is None:
            return newest + 1 if "loss" in found.values else newest
        self._proven = True
        return self._bar

    def _training_bar(self, done: int | None, total: int | None) -> bool:
        """Whether this bar is the training's.

        A new total is another bar, of an evaluation: until the first is full, and for ever once values belong to it.
        """
        if self._total not in (None, total) and (self._proven or self._bar != self._total):
            return False
        self._bar, self._total = done, total
        return True


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _step(value: Any) -> int | None:
    number = _number(value)
    if number is None or not 0 <= number <= LARGEST_STEP or number != int(number):
        return None
    return int(number)
