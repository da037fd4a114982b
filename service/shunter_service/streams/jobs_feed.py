"""All jobs of a project as a feed: each that is new or has changed, as it is by then, and each that was deleted.

A position is a moment of the database's clock in microseconds. Behind one that is not long ago come the changes that
the process holds; behind another the store is asked. A change may be told again, since what was changed at a moment is
seen only later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shunter_store.job import job_changes
from shunter_store.job.job_changes import Moment
from sqlalchemy import Connection

from shunter_service.context import Service
from shunter_service.streams.feeds import Batch, End, Item
from shunter_service.streams.project_watch import OVERLAP_S, ProjectWatch, news_of

_PAGE: Final = 200


class JobsFeed:
    """Never ends."""

    def __init__(self, service: Service, watch: ProjectWatch, position: int | None) -> None:
        """`position` None: from now on. The watch is ready."""
        self.position = watch.at_us if position is None else position
        self.end: End | None = None
        self._service = service
        self._watch = watch
        self._next = watch.behind
        self._catching_up: CatchingUp | None = None
        if position is not None:
            self._catching_up = CatchingUp(service, watch.project, position)

    @property
    def is_due(self) -> bool:
        return self._catching_up is not None or self._next < self._watch.behind

    async def read(self) -> Sequence[Item]:
        if self._catching_up is None:
            changes = self._watch.since(self._next)
            if changes is not None:
                found = changes[:_PAGE]
                self._next += len(found)
                self.position = max([self.position, *(change.at_us for change in found)])
                return [Item(max(self.position, change.at_us), *change.news) for change in found]
            self._next = self._watch.behind
            self._catching_up = CatchingUp(self._service, self._watch.project, self.position)
        batch = await self._catching_up.read()
        self.position = batch.position
        if batch.ended:
            self._catching_up = None
        return batch.items


class CatchingUp:
    """Reads from the store what changed since a moment: jobs that did, then the progress of all others that run."""

    def __init__(self, service: Service, project: str, position: int) -> None:
        self._db = service.db
        self._project = project
        self._after: Moment = (position / 1e6 - OVERLAP_S[service.db.dialect], "")
        self._position = position

    async def read(self) -> Batch:
        """The next changes; it has ended when nothing older than now is left."""
        return await self._db.aread(self._read)

    def _read(self, conn: Connection) -> Batch:
        rows, progress = job_changes.changed(conn, self._project, self._after, _PAGE)
        items = []
        for row in rows:
            self._position = max(self._position, int(row.updated_at.timestamp() * 1e6))
            items.append(Item(self._position, *news_of(row, progress.get(row.id))))
        if len(rows) == _PAGE:
            self._after = (rows[-1].updated_at.timestamp(), rows[-1].id)
            return Batch(items, self._position, ended=False)
        told = {row.id for row in rows}
        running = [id_ for id_ in job_changes.running(conn, self._project) if id_ not in told]
        others, progress = job_changes.of(conn, running)
        items += [Item(self._position, *news_of(row, progress.get(row.id))) for row in others]
        return Batch(items, self._position, ended=True)
