"""Processes that the kernel kills for want of main memory: they leave no word, but the kernel counts them."""

from __future__ import annotations

import time
from typing import Callable, Sequence

COUNTERS = ("/sys/fs/cgroup/memory.events", "/proc/vmstat")
"""Of the container, where there is one, and of the machine."""
REASON = "out_of_memory"
MESSAGE = (
    "The kernel killed it since main memory ran out: take smaller batches or fewer workers for data, offload less, or "
    "ask for more memory with resources.min_memory_gib_per_gpu."
)
_SAMPLED_S = 1.0


def kills(counters: Sequence[str] = COUNTERS) -> int:
    """A number that grows with every process killed so; 0 where nothing counts."""
    return sum(_count(path) for path in counters)


def _count(path: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            found = [line.split() for line in file if line.startswith("oom_kill ")]
        return sum(int(words[1]) for words in found)
    except (OSError, ValueError, IndexError):
        return 0


class KillWatch:
    """Tells whether a process that was killed a moment ago may have been killed so.

    The counters name no process, so only a moment counts: between one and two seconds before its end was noticed.
    """

    def __init__(self, count: Callable[[], int] = kills, clock: Callable[[], float] = time.monotonic) -> None:
        self._count, self._clock = count, clock
        self._before = self._now = count()
        self._sampled_at = clock()

    def sample(self) -> None:
        """Remember the count; to be called often while nothing dies."""
        now = self._clock()
        if now - self._sampled_at >= _SAMPLED_S:
            self._before, self._now, self._sampled_at = self._now, self._count(), now

    def grew(self) -> bool:
        """Whether the kernel has killed anything since shortly before."""
        return self._count() > self._before
