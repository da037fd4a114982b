"""Takes due jobs and steps them, a few at a time in one process, until nothing is due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from shunter_store.job import due
from shunter_store.job.due import Claim
from shunter_store.sql.database import Database

AT_ONCE: Final = 6
"""Steps of one process at the same time; they wait for providers and for the database, not for the processor."""
LINGER_S: Final = 0.02
"""While most places are taken: so long a claim waits for more of them, so that a few jobs share one transaction."""

_log = logging.getLogger(__name__)


class Claimer:
    """The only caller of steps in a process. Lives in one event loop."""

    def __init__(
        self, database: Database, step: Callable[[Claim], Awaitable[object]], *, owner: str, lease_s: float
    ) -> None:
        self._database = database
        self._step = step
        self._owner = owner
        self._lease_s = lease_s
        self._running: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        """Also those that have stepped and look for more; a task that nobody holds may vanish."""
        self._claiming = asyncio.Lock()
        self._open = True
        self._lingers = False
        self.steps = 0
        """Begun so far."""

    @property
    def busy(self) -> bool:
        """Whether any step runs."""
        return bool(self._running)

    async def pull(self) -> int:
        """Claim as many jobs as there is room for and begin to step them; returns how many."""
        async with self._claiming:
            room = AT_ONCE - len(self._running)
            if room <= 0 or not self._open:
                return 0
            claims = await self._database.awrite(
                lambda conn: due.claim(conn, owner=self._owner, limit=room, lease_s=self._lease_s)
            )
            self.steps += len(claims)
            for claim in claims:
                task = asyncio.create_task(self._run(claim))
                self._running.add(task)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        return len(claims)

    async def pull_quietly(self) -> None:
        """`pull` for callers whom nobody waits for."""
        if len(self._running) > AT_ONCE // 2:
            if self._lingers:
                return  # whoever lingers claims for all
            self._lingers = True
            await asyncio.sleep(LINGER_S)
            self._lingers = False
        try:
            await self.pull()
        except Exception:
            _log.exception("due jobs cannot be claimed")

    async def pull_if_due(self) -> None:
        """The timer's look: writes nothing while nothing is due."""
        waiting = await self._database.aread(lambda conn: due.count_due(conn, lease_s=self._lease_s))
        if waiting:
            await self.pull()

    async def close(self, within_s: float) -> None:
        """Claim nothing any more and wait for the steps that run."""
        self._open = False
        if self._running:
            _, late = await asyncio.wait(set(self._running), timeout=within_s)
            for task in late:
                _log.warning("a step is abandoned; its claim runs out by itself")
                task.cancel()

    async def _run(self, claim: Claim) -> None:
        try:
            await self._step(claim)
        finally:
            self._running.discard(_this_task())
        await self.pull_quietly()  # the step may have made its job due again, and here is room for another


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task
