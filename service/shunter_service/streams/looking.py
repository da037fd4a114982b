"""Notes that somebody looks at a job, so that its nodes report more often. Never makes a reader wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import structlog
from shunter_store.job import watch
from shunter_store.sql.database import Database

_REMEMBERED = 10_000

_log = structlog.get_logger("shunter.api")


class Lookers:
    """Of one process."""

    def __init__(self, db: Database, *, for_s: float) -> None:
        """`for_s`: how long a look counts."""
        self._db = db
        self._for_s = for_s
        self._noted: dict[str, float] = {}
        self._unwritten: set[str] = set()
        self._writing: asyncio.Task[None] | None = None

    def note(self, job_id: str) -> None:
        """Somebody looks at this job now. Written at most every third of the time that it holds, with what else is
        looked at in that moment; a job that ended has no node that could report, and is not written."""
        now = time.monotonic()
        if now - self._noted.get(job_id, -self._for_s) < self._for_s / 3:
            return
        if len(self._noted) > _REMEMBERED:
            self._noted.clear()
        self._noted[job_id] = now
        self._unwritten.add(job_id)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def close(self) -> None:
        """Wait for what is being written."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        while self._unwritten:
            job_ids, self._unwritten = sorted(self._unwritten), set()
            try:
                await self._write_down(job_ids)
            except Exception as error:  # the database may be away: nobody waits for this
                _log.debug("looks were not noted", jobs=len(job_ids), error=repr(error)[:200])

    async def _write_down(self, job_ids: Sequence[str]) -> None:
        living = await self._db.aread(lambda conn: watch.living(conn, job_ids))
        if living:
            await self._db.awrite(lambda conn: watch.touch(conn, living, self._for_s))
