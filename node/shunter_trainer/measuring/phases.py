"""Where the time of a step goes, measured in one step between two looks, so that it costs next to nothing.

On a GPU the marks are events in its own stream, read when they have long passed: nothing waits for them. On a CPU they
are the host's clock.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

DATA = "data_time_s"
FORWARD = "forward_time_s"
BACKWARD = "backward_time_s"
OPTIMIZER = "optimizer_time_s"


class Phases:
    """The marks of one rank. `begin`, then `mark(name)` at the end of each phase; a phase may come several times."""

    def __init__(self, device: torch.device) -> None:
        self._now: Callable[[], Any]
        self._between: Callable[[Any, Any], float]
        self._now, self._between = _gpu_clock() if device.type == "cuda" else (time.perf_counter, _seconds)
        self._marks: list[tuple[str, Any]] = []
        self._wanted = False
        self._on = False

    def want(self) -> None:
        """Measure the next step."""
        self._wanted = True

    def begin(self) -> None:
        """A step begins."""
        if self._wanted:
            self._wanted, self._on = False, True
            self._marks = [("", self._now())]

    def mark(self, name: str) -> None:
        """What was done since the last mark was this."""
        if self._on:
            self._marks.append((name, self._now()))

    def end(self, name: str) -> None:
        """The last phase, and with it the step, is over."""
        if self._on:
            self._marks.append((name, self._now()))
            self._on = False

    def read(self) -> dict[str, float]:
        """Seconds by phase of the step that was measured, once; empty where there is none to read yet."""
        if self._on or not self._marks:
            return {}
        marks, self._marks = self._marks, []
        sums: dict[str, float] = defaultdict(float)
        for (_, before), (name, after) in itertools.pairwise(marks):
            sums[name] += self._between(before, after)
        return dict(sums)


def _seconds(before: float, after: float) -> float:
    return after - before


def _gpu_clock() -> tuple[Callable[[], Any], Callable[[Any, Any], float]]:
    make_event: Any = torch.cuda.Event  # untyped

    def now() -> Any:
        event = make_event(enable_timing=True)
        event.record()
        return event

    def between(before: Any, after: Any) -> float:
        after.synchronize()
        return float(before.elapsed_time(after)) / 1000.0

    return now, between
