"""Holds the database's clock, by which everything is counted, against one that nobody sets.

Every process does, not one for all: the lease by which it would be the only one is counted by the same clock.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

from shunter_store.installation.setbacks import NOTABLE_S, follow_jump
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import clock_of

EVERY_S: Final = 2.0
LOOKS_WITHIN_S: Final = 5.0
FOLLOWS_WITHIN_S: Final = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Look:
    """What two clocks said at one moment: the database's, and one that nobody sets. Seconds."""

    by_database: float
    began: float

    def follows(self, before: _Look) -> bool:
        """Whether it came soon after: what was written before the jump can be told from what was written after it."""
        return self.began - before.began < FOLLOWS_WITHIN_S

    def ahead_s(self, before: _Look) -> float:
        """How much more has passed by the database's clock, since then, than really has."""
        return (self.by_database - before.by_database) - (self.began - before.began)


class ClockWatch:
    """One per process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._looked: _Look | None = None

    async def work(self) -> None:
        """One look. Where the clock was set, moments that were written before move with it (`setbacks`)."""
        before, look = self._looked, await self._look()
        if look is None:
            return
        if before is not None and look.follows(before):
            by_s, within_s = look.ahead_s(before), look.began - before.began + LOOKS_WITHIN_S
            if abs(by_s) >= NOTABLE_S:
                await self._follow(by_s, within_s)
        self._looked = look

    async def _follow(self, by_s: float, within_s: float) -> None:
        woken = await self._database.awrite(lambda conn: follow_jump(conn, by_s=by_s, within_s=within_s))
        if woken is not None:
            _log.warning("the database's clock went %+.0f s: %d jobs look anew", by_s, woken)

    async def _look(self) -> _Look | None:
        """None: it took so long, since this process stood still perhaps, that it says nothing."""
        began = time.monotonic()
        now = await self._database.aread(clock_of)
        return _Look(now.timestamp(), began) if time.monotonic() - began < LOOKS_WITHIN_S else None
