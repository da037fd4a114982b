"""One watcher a process: it looks at the jobs that somebody follows and wakes those who wait.

However many streams and long polls there are, a look is one query, and one more for each project whose jobs are
followed as a whole. Nobody follows anything: no query at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

import structlog
from shunter_store.sql.database import Database

from shunter_service.streams.project_watch import ProjectWatch
from shunter_service.streams.queries import Head, heads

_log = structlog.get_logger("shunter.api")

_numbers = count(1)
_PROGRESS_EVERY_S = 1.0
"""How often the progress of all running jobs of a project is looked at."""


class Watch:
    """One job under watch, shared by all who follow it."""

    def __init__(self, version: int = 0) -> None:
        self.head: Head | None = None
        self.version = version
        """Grows with everything that moves; of watches that are made again and again, with each."""
        self.followers = 0
        self.wakes: set[asyncio.Event] = set()
        self._changed = asyncio.Event()
        self._moved = asyncio.Event()

    @classmethod
    def unshared(cls) -> Watch:
        """For one look at a job that nobody follows."""
        return cls(-next(_numbers))

    def next_change(self) -> asyncio.Event:
        """Set at the next change of the job itself. Take it before you read the database, and no change is missed."""
        return self._changed

    def next_move(self) -> asyncio.Event:
        """The same, set by progress too."""
        return self._moved

    def see(self, head: Head | None) -> None:
        """Take what a look found, and wake those whom it concerns."""
        if head == self.head:
            return
        before, self.head = self.head, head
        self.version += 1
        if head is None or head.is_moved(before):
            self._moved = _set_and_new(self._moved)
        if head is None or head.is_changed(before):
            self._changed = _set_and_new(self._changed)
        _wake(self.wakes)

    def end(self) -> None:
        """Wake everybody who waits."""
        self._moved = _set_and_new(self._moved)
        self._changed = _set_and_new(self._changed)
        _wake(self.wakes)


class Tailer:
    """Runs on the event loop of the process, from `start` to `close`."""

    def __init__(self, db: Database, *, every_s: float) -> None:
        self._db = db
        self._every_s = every_s
        self._watches: dict[str, Watch] = {}
        self._projects: dict[str, ProjectWatch] = {}
        self._somebody = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._looks = 0
        self.closing = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="tailer")

    async def close(self) -> None:
        """End; streams see `closing` and end as well."""
        self.closing = True
        for watch in self._watches.values():
            watch.end()
        for project in self._projects.values():
            project.end()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @contextmanager
    def watch(self, job_id: str, wake: asyncio.Event | None = None) -> Iterator[Watch]:
        """Watch a job while the block runs. `wake` is set whenever anything of it moves, its output and metrics too."""
        watch = self._watches.get(job_id)
        if watch is None:
            watch = self._watches[job_id] = Watch(next(_numbers) << 32)
        watch.followers += 1
        if wake is not None:
            watch.wakes.add(wake)
        self._somebody.set()
        try:
            yield watch
        finally:
            watch.followers -= 1
            if wake is not None:
                watch.wakes.discard(wake)
            if not watch.followers:
                self._watches.pop(job_id, None)

    @contextmanager
    def watch_project(self, project: str, wake: asyncio.Event) -> Iterator[ProjectWatch]:
        """Watch all jobs of a project while the block runs. `wake` is set whenever one is new or has changed."""
        watch = self._projects.get(project)
        if watch is None:
            watch = self._projects[project] = ProjectWatch(project, self._db)
        watch.wakes.add(wake)
        self._somebody.set()
        try:
            yield watch
        finally:
            watch.wakes.discard(wake)
            if not watch.wakes and self._projects.get(project) is watch:
                del self._projects[project]

    async def wait(self, change: asyncio.Event, timeout_s: float) -> bool:
        """Wait for a change; False when the time passed without one."""
        if self.closing:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await change.wait()
        except TimeoutError:
            return False
        return True

    async def _run(self) -> None:
        while True:
            if not self._watches and not self._projects:
                self._somebody.clear()
                await self._somebody.wait()
            await self._look()
            await asyncio.sleep(self._every_s)

    async def _look(self) -> None:
        self._looks += 1
        progress_too = self._looks % max(1, round(_PROGRESS_EVERY_S / self._every_s)) == 0
        try:
            await self._look_at_jobs()
            for project in list(self._projects.values()):
                await project.look(progress_too=progress_too)
        except Exception as error:  # the database may come back; followers only wait longer
            _log.warning("cannot look at what is watched", error=repr(error)[:300])

    async def _look_at_jobs(self) -> None:
        ids = list(self._watches)
        found = await self._db.aread(lambda conn: heads(conn, ids)) if ids else {}
        for job_id in ids:
            watch = self._watches.get(job_id)
            if watch is not None:
                watch.see(found.get(job_id))


def _set_and_new(event: asyncio.Event) -> asyncio.Event:
    event.set()
    return asyncio.Event()


def _wake(wakes: set[asyncio.Event]) -> None:
    for wake in wakes:
        wake.set()
