"""Work that one process at a time does, under a lease in SQL: whoever holds it works, the others ask now and then."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from shunter_store.installation import leases
from shunter_store.sql.database import Database
from sqlalchemy import Connection

AFTER_A_FAILURE_S: Final = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Duty:
    """Something to be done again and again by one process."""

    name: str
    """Name of the lease."""
    work: Callable[[], Awaitable[float]]
    """Does it once and says in how many seconds to do it again."""
    close: Callable[[], Awaitable[None]] | None = None
    """Lets go of what it holds between times, when the process ends."""


class Singleton:
    """Competes for one duty and does it while the lease is held."""

    def __init__(self, database: Database, duty: Duty, *, owner: str, ttl_s: float) -> None:
        self._database = database
        self._duty = duty
        self._owner = owner
        self._ttl_s = ttl_s
        self._fence: int | None = None
        self._renew_at = 0.0
        self._work_at = 0.0

    async def run(self) -> None:
        """For ever; cancel it to stop, and then `release`."""
        while True:
            try:
                delay_s = await self._turn()
            except Exception:
                _log.exception("%s failed", self._duty.name)
                delay_s = AFTER_A_FAILURE_S
            await asyncio.sleep(delay_s)

    async def release(self) -> None:
        """Let another process have it at once."""
        if self._duty.close is not None:
            await self._duty.close()
        fence, self._fence = self._fence, None
        if fence is not None:
            await self._database.awrite(lambda conn: leases.release(conn, self._duty.name, self._owner, fence))

    async def _turn(self) -> float:
        if not await self._hold():
            return self._ttl_s / 3
        if time.monotonic() >= self._work_at:
            self._work_at = time.monotonic() + await self._duty.work()
        return max(0.0, min(self._work_at - time.monotonic(), self._ttl_s / 3))

    async def _hold(self) -> bool:
        if self._fence is not None and time.monotonic() < self._renew_at:
            return True
        began = time.monotonic()
        self._fence = await self._database.awrite(self._take)
        self._renew_at = began + self._ttl_s / 3
        return self._fence is not None

    def _take(self, conn: Connection) -> int | None:
        name, owner, fence = self._duty.name, self._owner, self._fence
        if fence is not None and leases.renew(conn, name, owner, fence, self._ttl_s):
            return fence
        return leases.acquire(conn, name, owner, self._ttl_s)
