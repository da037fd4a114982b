"""Ends nodes of this deployment that no job looks after: twins, orphans, and rows whose job is over.

A node is known by its handle, never by its name: one handle belongs to one intent, and every other node of this
deployment is a twin or an orphan. Two scans in a row have to show it: a create call of this moment may not be recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from shunter_providers.contract import NodeCondition, NodeView, Provider, ProviderError
from shunter_schemas.states import NodeState
from shunter_store import ledger
from shunter_store.database import Database
from shunter_store.ledger import NodeRow
from shunter_store.scans import SCANS_FOR_PROOF
from shunter_store.tables import job_due
from sqlalchemy import Connection, bindparam, select

SCANS_TO_BE_SURE: Final = 2

_LOOKED_AFTER = select(job_due.c.job_id).where(job_due.c.job_id.in_(bindparam("ids", expanding=True)))
_log = logging.getLogger(__name__)


class Reaper:
    """Remembers what it saw in the last scans of one instance."""

    def __init__(self, database: Database, instance: str) -> None:
        self._database = database
        self._instance = instance
        self._strangers: dict[str, int] = {}

    async def tend(self, provider: Provider, rows: Sequence[NodeRow], views: Sequence[NodeView], account: str) -> None:
        """Look at one complete listing.

        Args:
            rows: read before the listing began.

        Raises:
            ProviderError: the provider refused; the next scan tries again.
        """
        await self._end_strangers(provider, rows, views)
        await self._close_forgotten(provider, rows, account)

    async def _end_strangers(self, provider: Provider, rows: Sequence[NodeRow], views: Sequence[NodeView]) -> None:
        known = {row.handle for row in rows if row.handle is not None}
        awaited = {row.token for row in rows if row.handle is None}
        strangers = [view for view in views if view.handle not in known and view.token not in awaited]
        self._strangers = {view.handle: self._strangers.get(view.handle, 0) + 1 for view in strangers}
        sure = [handle for handle, seen in self._strangers.items() if seen >= SCANS_TO_BE_SURE]
        recorded = await self._database.aread(lambda conn: self._recorded(conn)) if sure else set()
        for handle in sure:
            if handle not in recorded:
                _log.warning("%s has the node %s, which the ledger does not know: it is ended", self._instance, handle)
                await self._end(provider, handle)

    def _recorded(self, conn: Connection) -> set[str | None]:
        """Handles that were recorded since the scan began."""
        return {row.handle for row in ledger.of_instance(conn, self._instance)}

    async def _close_forgotten(self, provider: Provider, rows: Sequence[NodeRow], account: str) -> None:
        """Rows of jobs that ended: a handle that came late opened them again."""
        leaving = [row for row in rows if row.state is NodeState.RELEASING and row.handle is not None]
        if not leaving:
            return
        tended = await self._database.aread(lambda conn: _looked_after(conn, {row.job_id for row in leaving}))
        for row in leaving:
            if row.job_id in tended or row.handle is None:
                continue
            if row.absent_scans < SCANS_FOR_PROOF:
                await self._end(provider, row.handle)
            elif (await provider.get(row.handle)).condition is NodeCondition.GONE:
                await self._close(row, account)

    async def _end(self, provider: Provider, handle: str) -> None:
        """Ask for a node's end; one that the provider refuses must not keep the others."""
        try:
            await provider.terminate(handle)
        except ProviderError as exc:
            _log.warning("%s did not end %s, which is tried again: %s", self._instance, handle, exc)

    async def _close(self, row: NodeRow, account: str) -> None:
        proof = {"kind": "absent", "account": account, "get": "gone"}
        await self._database.awrite(lambda conn: ledger.close_absent(conn, row.id, proof))


def _looked_after(conn: Connection, job_ids: set[str]) -> set[str]:
    return set(conn.execute(_LOOKED_AFTER, {"ids": sorted(job_ids)}).scalars())
