"""Reads what one provider instance has of ours, writes it to the ledger, and ends what the ledger does not know."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from shunter_providers.contract import Capabilities, NodeCondition, NodeView, Provider, ProviderError
from shunter_providers.registry import Registry
from shunter_store.node import ledger, live_rows
from shunter_store.node.ledger import ScannedNode
from shunter_store.node.live_rows import LiveRow
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import now_as_time
from sqlalchemy import Connection, select

from shunter_workers.accounts import Accounts
from shunter_workers.duties.reaper import Reaper, Reaping
from shunter_workers.witness import Witness

LIST_WITHIN_S: Final = 30.0
AFTER_AN_ERROR_S: Final = 15.0
QUICK_FACTOR: Final = 0.2
"""While nodes are on their way out, a listing comes so much sooner: their proof of absence is what jobs wait for. It is
held against their rows alone, which are few, where a scan compares those of thousands of nodes."""
RESTS: Final = 4.0
"""As many times as long as a listing took the scanner rests, if it would list at once: of thousands of nodes it takes
long. Never longer than the plugin's own interval."""

_NOW = select(now_as_time())
_log = logging.getLogger(__name__)


class Scanner:
    """One per provider instance."""

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        database: Database,
        registry: Registry,
        accounts: Accounts,
        *,
        instance: str,
        deployment: str,
        witness: Witness | None = None,
        reaping: Reaping = "end",
    ) -> None:
        self._database = database
        self._registry = registry
        self._accounts = accounts
        self.instance = instance
        self.scans = 0
        """Made so far."""
        self._deployment = deployment
        self._reaper = Reaper(database, instance, witness=witness, reaping=reaping)
        self._scan_at = 0.0

    async def work(self) -> float:
        """A scan if one is due; returns when to look whether one is."""
        provider: Provider | None = None
        try:
            provider = self._registry.get(self.instance)
            began = time.monotonic()
            interval_s = provider.capabilities.scan_interval_s
            quick_s = interval_s * QUICK_FACTOR
            whole = began >= self._scan_at
            rows, at = await self._database.aread(lambda conn: self._rows(conn, whole=whole))
            if whole or rows:
                await self._scan(provider, rows, at, whole=whole)
                ended = time.monotonic()
                if whole:
                    self._scan_at = ended + interval_s
                quick_s = max(quick_s, min(RESTS * (ended - began), interval_s))
        except ProviderError as exc:
            _log.warning("%s cannot be scanned: %s", self.instance, exc)
            await self._reaper.failed(provider, str(exc))
            return exc.retry_after_s or AFTER_AN_ERROR_S
        except TimeoutError:
            _log.warning("%s did not list its nodes within %.0f s", self.instance, LIST_WITHIN_S)
            await self._reaper.failed(provider, f"did not list its nodes within {LIST_WITHIN_S:.0f} s")
            return AFTER_AN_ERROR_S
        return quick_s

    async def _scan(self, provider: Provider, rows: Sequence[LiveRow], at: datetime, *, whole: bool) -> None:
        """One listing, held against these rows, which were read at `at`. What no row knows a `whole` scan sees."""
        self.scans += 1
        account = await self._accounts.of(self.instance)
        async with asyncio.timeout(LIST_WITHIN_S):
            views = await provider.list_owned(self._deployment)
        if rows:
            listed = {view.handle for view in views if view.condition is not NodeCondition.GONE}
            missing = [row for row in rows if row.handle not in listed]
            before = _could_be_listed(missing, provider.capabilities, at)
            seen = views if whole else _of_rows(rows, views)
            await self._database.awrite(lambda conn: self._observe(conn, account, seen, at, before, rows))
        if whole:
            await self._reaper.tend(provider, rows, views, account, at)

    def _rows(self, conn: Connection, *, whole: bool) -> tuple[list[LiveRow], datetime]:
        read = live_rows.of_instance if whole else live_rows.leaving
        return read(conn, self.instance), conn.execute(_NOW).scalar_one()

    def _observe(
        self,
        conn: Connection,
        account: str,
        views: Sequence[NodeView],
        at: datetime,
        before: frozenset[str],
        rows: Sequence[LiveRow],
    ) -> None:
        ledger.observe_scan(
            conn,
            instance=self.instance,
            account=account,
            views=[_scanned(view) for view in views],
            complete=True,
            at=at,
            rows_before=before,
            rows=rows,
        )


def _of_rows(rows: Sequence[LiveRow], views: Sequence[NodeView]) -> list[NodeView]:
    """The views that may be these rows'."""
    names = {row.handle or row.token for row in rows}
    return [view for view in views if view.handle in names or view.token in names]


def _could_be_listed(rows: Sequence[LiveRow], capabilities: Capabilities, at: datetime) -> frozenset[str]:
    """Rows old enough that a listing which began at `at` would show them."""
    old_enough_s = capabilities.visibility_delay_s
    return frozenset(
        row.id
        for row in rows
        if row.handle is None or row.created_at is None or (at - row.created_at).total_seconds() >= old_enough_s
    )


def _scanned(view: NodeView) -> ScannedNode:
    return ScannedNode(
        handle=view.handle,
        token=view.token,
        condition=str(view.condition),
        reason=view.reason,
        addresses=view.addresses,
        billed_usd_per_hour=view.billed_usd_per_hour,
        fault=None if view.fault is None else str(view.fault),
        scope=None if view.fault is None else str(view.scope),
    )
