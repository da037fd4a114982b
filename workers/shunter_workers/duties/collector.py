"""Deletes the bytes that nobody needs any more: of deleted jobs, and of checkpoints that were pruned."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from shunter_store.sql.database import Database
from shunter_store.storage import garbage
from shunter_store.storage.garbage import GarbageRow
from shunter_store.storage.objects import ObjectStore

EVERY_S: Final = 5.0
AT_ONCE: Final = 50

_log = logging.getLogger(__name__)


class Collector:
    """First the bytes go, then the row: whoever dies between does it again."""

    def __init__(self, database: Database, objects_url: str) -> None:
        self._database = database
        self._objects_url = objects_url
        self._objects: ObjectStore | None = None
        self._after = 0
        """The last row that was looked at in this pass."""

    async def work(self) -> float:
        """One round. Garbage that cannot be deleted at this moment is passed by until the next pass."""
        rows = await self._database.aread(lambda conn: garbage.take(conn, AT_ONCE, after=self._after))
        gone = [row.id for row in rows if await asyncio.to_thread(self._deleted, row)]
        if gone:
            await self._database.awrite(lambda conn: garbage.forget(conn, gone))
        more = len(rows) == AT_ONCE
        self._after = rows[-1].id if more else 0
        return 0.0 if more else EVERY_S

    def _deleted(self, row: GarbageRow) -> bool:
        if self._objects is None:
            self._objects = ObjectStore(self._objects_url)
        try:
            for key in row.keys:
                self._objects.delete(key)
            if row.below is not None:
                self._objects.delete_below(row.below, kept=row.kept)
        except Exception:
            _log.exception("garbage %d cannot be deleted; it is tried again", row.id)
            return False
        _log.info("deleted %d objects%s", len(row.keys), f" and all below {row.below}" if row.below else "")
        return True
