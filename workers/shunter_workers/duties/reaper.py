"""Ends nodes of this deployment that no job looks after: twins, orphans, and rows whose job is over.

A node is known by its handle, never by its name: one handle belongs to one intent, and every other node of this
deployment is a twin or an orphan. Two scans in a row have to show it: a create call of this moment may not be recorded.

In a database that was restored the ledger lacks what was made after the backup: there strangers are reported, and ended
only once an operator has confirmed. Rows that the ledger has are ended as ever: they are known to be ours to end.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from shunter_providers.contract import NodeCondition, NodeView, Provider, ProviderError
from shunter_schemas.states import NodeState
from shunter_store.accounts import readings
from shunter_store.installation import deployment, notices
from shunter_store.node import ledger, live_rows
from shunter_store.node.ledger import NodeRow
from shunter_store.node.live_rows import LiveRow
from shunter_store.node.scans import SCANS_FOR_PROOF
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import now_as_time
from shunter_store.tables import job_due
from sqlalchemy import Connection, bindparam, select

from shunter_workers.witness import Witness

SCANS_TO_BE_SURE: Final = 2
STALE_AFTER_SCANS: Final = 4
"""So many scans may be missed until nothing is claimed by the last one any more."""
LEAST_STALE_AFTER_S: Final = 120.0

RECORD_EVERY: Final = timedelta(seconds=5)

Reaping = Literal["end", "report"]
OpenRow = NodeRow | LiveRow

_NOW = select(now_as_time())

_LOOKED_AFTER = select(job_due.c.job_id).where(job_due.c.job_id.in_(bindparam("ids", expanding=True)))
_log = logging.getLogger(__name__)


class Reaper:
    """Remembers what it saw in the last scans of one instance."""

    def __init__(
        self, database: Database, instance: str, *, witness: Witness | None = None, reaping: Reaping = "end"
    ) -> None:
        self._database = database
        self._instance = instance
        self._witness = witness
        self._reaping = reaping
        self._strangers: dict[str, int] = {}
        self._recorded_at: datetime | None = None
        self._told: dict[str, bool] = {}
        """What was told of which of them: once that it is reported, and once that it is ended."""

    async def tend(
        self,
        provider: Provider,
        rows: Sequence[OpenRow],
        views: Sequence[NodeView],
        account: str,
        at: datetime | None = None,
    ) -> None:
        """Look at one complete listing, and write down that it was made.

        Args:
            rows: read before the listing began.
            at: when it began, by the database's clock; None: now.

        Raises:
            ProviderError: the provider refused; the next scan tries again.
        """
        sure = await self._sure_strangers(rows, views)
        if sure or not self._is_known(at):
            await self._report(provider, account, at, sure)
        await self._close_forgotten(provider, rows, account)

    async def failed(self, provider: Provider | None, error: str) -> None:
        """The instance could not be listed: nothing may be claimed about it until it can be."""
        self._recorded_at = None
        bills, stale_after_s = _terms(provider)

        def write(conn: Connection) -> None:
            readings.record_failure(conn, self._instance, bills=bills, stale_after_s=stale_after_s, error=error[:1000])

        await self._database.awrite(write)

    async def _report(self, provider: Provider, account: str, at: datetime | None, sure: dict[str, NodeView]) -> None:
        """Write down what was seen, and end strangers where that is allowed."""
        ends = bool(sure) and await self._may_end()

        def write(conn: Connection) -> None:
            self._record(conn, provider, account, at, sure)
            self._tell(conn, sure, ends=ends)

        await self._database.awrite(write)
        self._told = dict.fromkeys(sure, ends)
        self._recorded_at = None if sure else at
        for handle in sure if ends else ():
            _log.warning("%s has the node %s, which the ledger does not know: it is ended", self._instance, handle)
            await self._end(provider, handle)

    def _is_known(self, at: datetime | None) -> bool:
        """Whether a good listing without strangers was written down a moment ago: quick scans are many."""
        if at is None or self._recorded_at is None:
            return False
        return abs(at - self._recorded_at) < RECORD_EVERY

    async def _sure_strangers(self, rows: Sequence[OpenRow], views: Sequence[NodeView]) -> dict[str, NodeView]:
        """Those that two scans in a row showed and no row knows by now, by their handles."""
        known = {row.handle for row in rows if row.handle is not None}
        awaited = {row.token for row in rows if row.handle is None}
        strange = [view for view in views if view.handle not in known and view.token not in awaited]
        self._strangers = {view.handle: self._strangers.get(view.handle, 0) + 1 for view in strange}
        sure = {view.handle: view for view in strange if self._strangers[view.handle] >= SCANS_TO_BE_SURE}
        recorded = await self._database.aread(lambda conn: self._recorded(conn)) if sure else set()
        return {handle: view for handle, view in sure.items() if handle not in recorded}

    async def _may_end(self) -> bool:
        if self._reaping != "end":
            return False
        if self._witness is not None:
            return not (await self._witness.look()).reaping_is_held
        found = await self._database.aread(deployment.find)
        return found is None or not found.reaping_is_held

    def _record(
        self,
        conn: Connection,
        provider: Provider,
        account: str,
        at: datetime | None,
        sure: dict[str, NodeView],
    ) -> None:
        bills, stale_after_s = _terms(provider)
        readings.record(
            conn,
            self._instance,
            account=account,
            bills=bills,
            stale_after_s=stale_after_s,
            at=at or conn.execute(_NOW).scalar_one(),
            strangers=[_as_data(view) for view in sure.values()],
        )

    def _tell(self, conn: Connection, sure: dict[str, NodeView], *, ends: bool) -> None:
        for handle, view in sure.items():
            if self._told.get(handle) is not ends:
                data = {"provider": self._instance, **_as_data(view)}
                notices.put(conn, "reaping.ended" if ends else "reaping.reported", data)

    def _recorded(self, conn: Connection) -> set[str | None]:
        """Handles that were recorded since the scan began."""
        return {row.handle for row in live_rows.of_instance(conn, self._instance)}

    async def _close_forgotten(self, provider: Provider, rows: Sequence[OpenRow], account: str) -> None:
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

    async def _close(self, row: OpenRow, account: str) -> None:
        proof = {"kind": "absent", "account": account, "get": "gone"}
        await self._database.awrite(lambda conn: ledger.close_absent(conn, row.id, proof))


def _looked_after(conn: Connection, job_ids: set[str]) -> set[str]:
    return set(conn.execute(_LOOKED_AFTER, {"ids": sorted(job_ids)}).scalars())


def _terms(provider: Provider | None) -> tuple[bool, float]:
    """Whether its nodes cost money, and for how long a listing of it may be relied on. A plugin that does not load may
    have left nodes that do."""
    if provider is None:
        return True, LEAST_STALE_AFTER_S
    capabilities = provider.capabilities
    return capabilities.bills, max(LEAST_STALE_AFTER_S, STALE_AFTER_SCANS * capabilities.scan_interval_s)


def _as_data(view: NodeView) -> dict[str, Any]:
    return {
        "handle": view.handle,
        "token": view.token,
        "condition": str(view.condition),
        "usd_per_hour": view.billed_usd_per_hour,
    }
