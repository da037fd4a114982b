"""All jobs of a project under watch: what changed of late, ready to be sent, in the order in which it was seen.

A change is found by the job's `updated_at`, a deletion by the moment that is kept of it. That is the clock at the
statement that made it, and it is seen at the end of its transaction: so each look goes back a little, and leaves out
what it knows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final, Literal, NamedTuple

from shunter_schemas.api import JobChange
from shunter_store.job import job_changes
from shunter_store.job.job_changes import ChangedJob, DeletedJob
from shunter_store.report.metrics import ProgressRow
from shunter_store.sql.database import Database

from shunter_service.web.answers import encode

OVERLAP_S: Final[Mapping[str, float]] = {"sqlite": 1.0, "postgresql": 10.0}
"""How much later a change may be seen than it was made. SQLite's writers wait for each other."""
_KEPT: Final = 2000
_PAGE: Final = 500

_Version = tuple[int, int, int]
"""Revision, generation of the newest progress, its step."""
_GONE: Final[_Version] = (-1, 0, 0)


class News(NamedTuple):
    """What is told of a job: itself as it is now (`job`), or the id of one that was deleted, as JSON."""

    name: Literal["job", "deleted"]
    data: bytes


class Change(NamedTuple):
    """News, and the moment from which a reader goes on behind it, in microseconds."""

    number: int
    at_us: int
    news: News


class ProjectWatch:
    """Shared by all who follow the project."""

    def __init__(self, project: str, db: Database) -> None:
        self.project = project
        self.overlap_s = OVERLAP_S[db.dialect]
        self.wakes: set[asyncio.Event] = set()
        self._db = db
        self._changes: deque[Change] = deque(maxlen=_KEPT)
        self._behind = 0
        self._since = 0.0
        self._known: dict[str, _Version] = {}
        self._ready = asyncio.Event()

    async def ready(self) -> int:
        """Wait until nothing that changes from now on is missed; the number behind the last change so far."""
        await self._ready.wait()
        return self._behind

    @property
    def is_ready(self) -> bool:
        """Whether it was looked at, so that nothing is missed from then on."""
        return self._ready.is_set()

    @property
    def behind(self) -> int:
        """The number of the next change."""
        return self._behind

    @property
    def at_us(self) -> int:
        """Everything that was changed before this moment, but for the overlap, has been seen."""
        return int(self._since * 1e6)

    def since(self, number: int) -> list[Change] | None:
        """The changes from this number on; None when some of them are not at hand any more."""
        first = self._behind - len(self._changes)
        if number < first:
            return None
        return [self._changes[place] for place in range(number - first, len(self._changes))]

    def end(self) -> None:
        """Wake everybody who waits."""
        self._ready.set()
        for wake in self.wakes:
            wake.set()

    async def look(self, *, progress_too: bool) -> None:
        """Read what changed since the last look."""
        if not self.is_ready:
            self._since, self._known = await self._db.aread(
                lambda conn: (job_changes.now(conn), dict(job_changes.running(conn, self.project)))
            )
            await self._look_at_changes(tell=False)
            self._ready.set()
            return
        before = self._behind
        await self._look_at_changes()
        if progress_too:
            await self._look_at_progress()
        if self._behind > before:
            for wake in self.wakes:
                wake.set()

    async def _look_at_changes(self, *, tell: bool = True) -> None:
        oldest = self._since - self.overlap_s
        after: job_changes.Moment = (oldest, "")
        recent: dict[str, _Version] = {}
        while True:
            rows, progress = await self._db.aread(
                partial(job_changes.changed, project=self.project, after=after, limit=_PAGE)
            )
            for row in rows:
                self._since = max(self._since, row.updated_at.timestamp())
                recent[row.id] = version = _version(row, progress.get(row.id))
                if tell and self._known.get(row.id) != version:
                    self._add(row, progress.get(row.id))
            self._known.update(recent)
            if len(rows) < _PAGE:
                break
            after = (rows[-1].updated_at.timestamp(), rows[-1].id)
        if len(self._known) > 2 * len(recent) + _KEPT:
            running = await self._db.aread(lambda conn: job_changes.running(conn, self.project))
            self._known = {id_: version for id_, version in self._known.items() if id_ in recent or id_ in running}

    async def _look_at_progress(self) -> None:
        running = await self._db.aread(lambda conn: job_changes.running(conn, self.project))
        moved = [id_ for id_, version in running.items() if self._known.get(id_) != version]
        if not moved:
            return
        rows, progress = await self._db.aread(lambda conn: job_changes.of(conn, moved))
        for row in rows:
            self._known[row.id] = _version(row, progress.get(row.id))
            self._add(row, progress.get(row.id))

    def _add(self, row: ChangedJob | DeletedJob, progress: ProgressRow | None) -> None:
        self._changes.append(Change(self._behind, self.at_us, news_of(row, progress)))
        self._behind += 1


def news_of(row: ChangedJob | DeletedJob, progress: ProgressRow | None) -> News:
    """A job that changed or is gone, as it is told."""
    if isinstance(row, DeletedJob):
        return News("deleted", f'"{row.id}"'.encode())
    return News(
        "job",
        encode(
            JobChange(
                id=row.id,
                name=row.name,
                state=row.state,
                reason=row.reason,
                step=progress.step if progress else None,
                total_steps=progress.total_steps if progress else None,
                created_at=row.created_at,
                finished_at=row.finished_at,
                paused=True if row.pause_requested_at is not None and row.finished_at is None else None,
                revision=row.revision,
            )
        ),
    )


def _version(row: ChangedJob | DeletedJob, progress: ProgressRow | None) -> _Version:
    if isinstance(row, DeletedJob):
        return _GONE
    return (row.revision, progress.generation, progress.step) if progress else (row.revision, 0, 0)
