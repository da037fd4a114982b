"""The one door to the journal: what is recorded is folded into the state, and the service hears of it."""

from __future__ import annotations

import time
from typing import Any, Callable

from shunter_agent.keeping.journal import Entry, Journal
from shunter_agent.keeping.state import State
from shunter_agent.trace import trace

NOTABLE = frozenset({"boot", "rank_up", "rank_exit", "done", "failed", "stopped", "checkpoint", "drained"})
"""The service hears of these at once; everything else travels with the next exchange."""

ESSENTIAL = NOTABLE | {"log", "artifact"}
"""A full disk only delays these; the others are dropped and counted."""


class Recorder:
    """Used by the main thread only."""

    def __init__(self, journal: Journal, state: State, tell: Callable[[float], None]) -> None:
        """`tell(s)` has the next exchange come no later than `s` seconds after the last one."""
        self._journal = journal
        self._state = state
        self._tell = tell
        self._delayed: list[Entry] = []
        self._stuck: tuple[float, str] | None = None
        """Since when, on the monotonic clock, records wait, and what keeps them."""

    def record(self, type: str, generation: int, data: dict[str, Any], within_s: float | None = None) -> None:
        """Write one record; `within_s`: the service should hear of it that soon."""
        self.record_all([Entry(type, generation, data)], within_s)

    def record_all(self, entries: list[Entry], within_s: float | None = None) -> None:
        """Write several records at the price of one."""
        if not entries:
            return
        self._delayed += [entry._replace(at=time.time() if entry.at is None else entry.at) for entry in entries]
        self.retry(within_s)

    def retry(self, within_s: float | None = None) -> None:
        """Write what a full disk has delayed; called again and again while there is some."""
        entries, self._delayed = self._delayed, []
        if not entries:
            return
        try:
            written = self._journal.append(entries)
        except OSError as error:
            self._delayed = [entry for entry in entries if entry.type in ESSENTIAL]
            if self._delayed:
                self._stuck = (self._stuck[0] if self._stuck else time.monotonic(), str(error))
            self._journal.dropped += len(entries) - len(self._delayed)
            trace(f"journal: {error}; {len(self._delayed)} records wait, {self._journal.dropped} dropped")
            return
        self._stuck = None
        for record in written:
            self._state.apply(record)
        if any(entry.type in NOTABLE for entry in entries):
            within_s = 0.0
        if within_s is not None:
            self._tell(within_s)

    def stuck(self, for_s: float) -> str:
        """What keeps records from being written for so long already; empty when nothing does. For any thread."""
        found = self._stuck
        return found[1] if found is not None and time.monotonic() - found[0] >= for_s else ""

    @property
    def delayed(self) -> bool:
        """Whether records wait for room on the disk."""
        return bool(self._delayed)
