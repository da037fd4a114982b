"""Forgets what was only kept for a while: answers under idempotency keys, and which records were deleted."""

from __future__ import annotations

import logging
from typing import Final

from shunter_store.job import deletion, idempotency
from shunter_store.sql.database import Database

EVERY_S: Final = 600.0
AT_ONCE: Final = 500
"""Rows of a transaction: the others who write wait for it."""
_BETWEEN_S: Final = 0.2

_log = logging.getLogger(__name__)


class Forgetter:
    """A little at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def work(self) -> float:
        """One round."""
        answers = await self._database.awrite(lambda conn: idempotency.expire(conn, AT_ONCE))
        deletions = await self._database.awrite(lambda conn: deletion.expire(conn, AT_ONCE))
        if answers or deletions:
            _log.info("forgot %d answers under idempotency keys and %d deletions", answers, deletions)
        return _BETWEEN_S if AT_ONCE in (answers, deletions) else EVERY_S
