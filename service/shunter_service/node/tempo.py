"""How often nodes are asked to come: less often the busier this process is, or the machine in whose work it has a part,
and never less often than the settings say.

What is new an agent tells at once, whatever it was asked: a slower tempo delays only what it hears of itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shunter_store.installation.settings import Pace

LOOK_EVERY_S: Final = 1.0
BUSY_SHARE: Final = 0.6
"""Of one processor, which is all that a process has for its handlers."""
SLOW_ANSWER_S: Final = 0.5
FULL_SHARE: Final = 0.9
"""Of all processors, which workers, the database and other API processes use too."""
PART: Final = 0.2
"""Of one processor. A process that takes less has no part in it that the machine is full: trainings may run there."""
_FASTER: Final = 0.8
_SLOWER: Final = 1.5
_MOST: Final = 20.0
_STAT: Final = Path("/proc/stat")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def machine_used_s() -> float:
    """Seconds that all processors together have worked, each by its share; 0 where the system does not tell."""
    try:
        with _STAT.open("rb") as file:
            user, nice, system, _idle, _iowait, *rest = map(int, file.readline().split()[1:9])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + sum(rest)) / _TICKS / (os.cpu_count() or 1)


class Tempo:
    """Of one process. Looks at the load about once a second and moves by steps, so that it settles."""

    def __init__(
        self,
        pace: Pace,
        *,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
        machine: Callable[[], float] = machine_used_s,
    ) -> None:
        self._settings = pace
        self._pace = pace
        self._clock = clock
        self._processor = processor
        self._machine = machine
        self._looked_at = clock()
        self._used_s = processor()
        self._machine_s = machine()
        self._answered = 0
        self._waited_s = 0.0
        self.per_second = 0.0
        """Exchanges answered, of late."""
        self.stretch = 1.0
        """Nodes come so many times less often than the settings say, up to the slowest pace that they allow."""

    def note(self, took_s: float) -> None:
        """An exchange was answered after so long."""
        self._answered += 1
        self._waited_s += took_s

    def pace(self) -> Pace:
        """The pace of this moment."""
        now = self._clock()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._look(now)
        return self._pace

    def _look(self, now: float) -> None:
        load = self._load(now)
        if load > 1.0:
            stretch = min(_MOST, self.stretch * _SLOWER)
        elif load < _FASTER:
            stretch = max(1.0, self.stretch * _FASTER)
        else:
            return
        if stretch != self.stretch:
            self.stretch, self._pace = stretch, _stretched(self._settings, stretch)

    def _load(self, now: float) -> float:
        """What there was to do since the last look, as a share of what should be; above 1 it is too much."""
        used_s, machine_s = self._processor(), self._machine()
        passed_s = now - self._looked_at
        share = (used_s - self._used_s) / passed_s
        full = (machine_s - self._machine_s) / passed_s
        answer_s = self._waited_s / max(1, self._answered)
        self.per_second = self._answered / passed_s
        self._looked_at, self._used_s, self._machine_s = now, used_s, machine_s
        self._answered, self._waited_s = 0, 0.0
        return max(share / BUSY_SHARE, answer_s / SLOW_ANSWER_S, full / FULL_SHARE if share > PART else 0.0)


def _stretched(pace: Pace, factor: float) -> Pace:
    """Nothing becomes slower than `slowest_s`, or what the settings ask for if that is slower still; and people wait
    for jobs that start or stop, so those are stretched less."""
    asked = {"changing_s": min(factor, _MOST / 2), "watched_s": factor, "quiet_s": factor}
    changed = {
        name: max(own, min(own * by, pace.slowest_s)) for name, by in asked.items() for own in [getattr(pace, name)]
    }
    return pace.model_copy(update=changed)
