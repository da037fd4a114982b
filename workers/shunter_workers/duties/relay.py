"""Outbox to broker: the only way by which a hint leaves the database."""

from __future__ import annotations

import time
from typing import Final

from shunter_store.job import outbox
from shunter_store.sql.database import Database

from shunter_workers.claiming import Claimer
from shunter_workers.hints import Hints

BUSY_S: Final = 0.05
IDLE_S: Final = 0.25
BUSY_FOR_S: Final = 5.0
BROKER_DOWN_S: Final = 0.25
AT_ONCE: Final = 200


class Relay:
    """Sends what is in the outbox and forgets it; while the broker is away this process does the work itself."""

    def __init__(self, database: Database, hints: Hints, claimer: Claimer) -> None:
        self._database = database
        self._hints = hints
        self._claimer = claimer
        self._busy_until = 0.0

    async def work(self) -> float:
        """One look at the outbox."""
        rows = await self._database.aread(lambda conn: outbox.take(conn, AT_ONCE))
        if not rows:
            return BUSY_S if time.monotonic() < self._busy_until else IDLE_S
        self._busy_until = time.monotonic() + BUSY_FOR_S
        if not await self._hints.publish(len(rows)):
            await self._claimer.pull()
            return BROKER_DOWN_S
        ids = [row.id for row in rows]
        await self._database.awrite(lambda conn: outbox.delete(conn, ids))
        return 0.0 if len(rows) == AT_ONCE else BUSY_S
