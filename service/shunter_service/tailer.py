"""One watcher a process: it looks at the jobs that somebody follows and wakes those who wait.

However many streams and long polls there are, a look is one query. Nobody follows anything: no query at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog
from shunter_store.database import Database

from shunter_service.queries import Head, heads

_log = structlog.get_logger("shunter.api")


class Watch:
    """One job under watch, shared by all who follow it."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.followers = 0
        self._changed = asyncio.Event()
        self._moved = asyncio.Event()

    def next_change(self) -> asyncio.Event:
        """Set at the next change. Take it before you read the database, and no change is missed."""
        return self._changed

    def next_move(self) -> asyncio.Event:
        """The same, set by progress too."""
        return self._moved

    def announce(self, *, progress_only: bool = False) -> None:
        """Wake everybody who waits; or only those who wait for progress too."""
        self._moved.set()
        self._moved = asyncio.Event()
        if not progress_only:
            self._changed.set()
            self._changed = asyncio.Event()


class Tailer:
    """Runs on the event loop of the process, from `start` to `close`."""

    def __init__(self, db: Database, *, every_s: float) -> None:
        self._db = db
        self._every_s = every_s
        self._watches: dict[str, Watch] = {}
        self._somebody = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.closing = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="tailer")

    async def close(self) -> None:
        """End; streams see `closing` and end as well."""
        self.closing = True
        for watch in self._watches.values():
            watch.announce()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @contextmanager
    def watch(self, job_id: str) -> Iterator[Watch]:
        """Watch a job while the block runs."""
        watch = self._watches.setdefault(job_id, Watch())
        watch.followers += 1
        self._somebody.set()
        try:
            yield watch
        finally:
            watch.followers -= 1
            if not watch.followers:
                self._watches.pop(job_id, None)

    async def wait(self, change: asyncio.Event, timeout_s: float) -> bool:
        """Wait for a change; False when the time passed without one."""
        if self.closing:
            return True
        try:
            await asyncio.wait_for(change.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def _run(self) -> None:
        while True:
            if not self._watches:
                self._somebody.clear()
                await self._somebody.wait()
            await self._look()
            await asyncio.sleep(self._every_s)

    async def _look(self) -> None:
        ids = list(self._watches)
        try:
            found = await self._db.aread(lambda conn: heads(conn, ids))
        except Exception as error:  # the database may come back; followers only wait longer
            _log.warning("cannot look at watched jobs", error=repr(error)[:300])
            return
        for job_id in ids:
            watch, head = self._watches.get(job_id), found.get(job_id)
            if watch is not None and head != watch.head:
                before, watch.head = watch.head, head
                watch.announce(progress_only=head is not None and not head.is_changed(before))
