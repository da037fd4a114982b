"""How often nodes are asked to come: less often the busier this process is, and never less often than the settings say.

What is new an agent tells at once, whatever it was asked: a slower tempo delays only what it hears of itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from shunter_store.settings import Pace

LOOK_EVERY_S: Final = 1.0
BUSY_SHARE: Final = 0.6
"""Of one processor, which is all that a process has for its handlers."""
SLOW_ANSWER_S: Final = 0.5
_FASTER: Final = 0.8
_SLOWER: Final = 1.5
_MOST: Final = 20.0


class Tempo:
    """Of one process. Looks at the load about once a second and moves by steps, so that it settles."""

    def __init__(
        self,
        pace: Pace,
        *,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._settings = pace
        self._pace = pace
        self._clock = clock
        self._processor = processor
        self._looked_at = clock()
        self._used_s = processor()
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
        used_s = self._processor()
        share = (used_s - self._used_s) / (now - self._looked_at)
        answer_s = self._waited_s / max(1, self._answered)
        self.per_second = self._answered / (now - self._looked_at)
        self._looked_at, self._used_s, self._answered, self._waited_s = now, used_s, 0, 0.0
        if share > BUSY_SHARE or answer_s > SLOW_ANSWER_S:
            stretch = min(_MOST, self.stretch * _SLOWER)
        elif share < BUSY_SHARE * _FASTER and answer_s < SLOW_ANSWER_S / 2:
            stretch = max(1.0, self.stretch * _FASTER)
        else:
            return
        if stretch != self.stretch:
            self.stretch, self._pace = stretch, _stretched(self._settings, stretch)


def _stretched(pace: Pace, factor: float) -> Pace:
    """Nothing becomes slower than `slowest_s`, or what the settings ask for if that is slower still; and people wait
    for jobs that start or stop, so those are stretched less."""
    asked = {"changing_s": min(factor, _MOST / 2), "watched_s": factor, "quiet_s": factor}
    changed = {
        name: max(own, min(own * by, pace.slowest_s)) for name, by in asked.items() for own in [getattr(pace, name)]
    }
    return pace.model_copy(update=changed)
