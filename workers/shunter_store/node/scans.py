"""Folds a provider's listing into the ledger: who is there, who is not, and what it costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from shunter_schemas.states import NodeState
from sqlalchemy import Connection, bindparam, func, select, update

from shunter_store.job import due
from shunter_store.node import live_rows
from shunter_store.node.ledger_rows import ACCRUED, END_INTERVAL, ScannedNode
from shunter_store.node.live_rows import LiveRow
from shunter_store.sql.sqltypes import Json, UtcTime, db_now
from shunter_store.tables import nodes

SCANS_FOR_PROOF: Final = 2
"""Complete listings in a row that must not show a node before its absence is believed."""

_GONE: Final = "gone"
_QUEUED: Final = "queued"

_OFFER = select(nodes.c.offer).where(nodes.c.id == bindparam("node"))
_SEEN = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"))
    .values(
        absent_scans=0,
        condition=bindparam("shown"),
        condition_reason=bindparam("why"),
        condition_fault=bindparam("by_fault"),
        condition_scope=bindparam("as_far_as"),
        addresses=bindparam("reached_at", type_=Json),
        queued_until=func.coalesce(bindparam("left_queue_at", type_=UtcTime), nodes.c.queued_until),
        scanned_at=bindparam("at", type_=UtcTime),
    )
)
_SEE_FIRST = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"), nodes.c.condition.is_(None))
    .values(
        condition=bindparam("shown"), condition_reason=bindparam("why"), addresses=bindparam("reached_at", type_=Json)
    )
)
_FOUND = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"))
    .values(handle=bindparam("new_handle"), created_at=db_now(), state=bindparam("new_state"))
)
_PRICED = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"))
    .values(accrued_usd=ACCRUED, accrued_at=db_now(), billed_usd_per_hour=bindparam("rate"))
)
_MISSED = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"))
    .values(
        absent_scans=nodes.c.absent_scans + 1,
        condition=bindparam("shown"),
        scanned_at=bindparam("at", type_=UtcTime),
    )
)


def observe_scan(  # noqa: PLR0913 - a listing and its circumstances, by keyword
    conn: Connection,
    *,
    instance: str,
    account: str,
    views: Sequence[ScannedNode],
    complete: bool,
    at: datetime,
    rows_before: Collection[str],
    rows: Sequence[LiveRow] | None = None,
) -> list[str]:
    """Compare one listing with the ledger; wake and return the jobs whose nodes changed.

    A node is matched by its handle; a row without handle (an ambiguous create) by its token, and takes the handle. A
    listing counts as not showing a node only if it is complete, was made by the row's own account, and could have
    shown it. Rows that did not change are neither written nor locked: agents and steps go on beside a scan.

    Args:
        at: when the listing began.
        rows_before: ids of the rows whose absence would mean something: read before the listing began, and old enough
            for the plugin's visibility delay.
        rows: the open rows as they were read before the listing, to spare reading them again.
    """
    listing = _Listing(views)
    changed: set[str] = set()
    asked = live_rows.of_instance(conn, instance) if rows is None else rows
    differing = {row.id for row in asked if _differs(row, listing.of(row))}
    for row in live_rows.locked(conn, differing):
        view = listing.of(row)
        if view is not None and view.condition != _GONE:
            moved = _see(conn, row, view, at)
        else:
            could_show = complete and account == row.account and row.id in rows_before
            moved = could_show and _past_deadline(row, at) and _miss(conn, row, at)
        if moved:
            changed.add(row.job_id)
    due.wake(conn, changed)
    return sorted(changed)


def see_first(conn: Connection, node_id: str, *, condition: str, reason: str, addresses: Mapping[str, str]) -> None:
    """What a look at one node showed, unless a listing has shown it meanwhile."""
    shown = {"shown": condition, "why": reason or None, "reached_at": dict(addresses)}
    conn.execute(_SEE_FIRST, {"node": node_id, **shown})


class _Listing:
    """Views by handle, and by token for rows whose handle nobody knows."""

    def __init__(self, views: Sequence[ScannedNode]) -> None:
        self._by_handle = {view.handle: view for view in views}
        self._by_token = {view.token: view for view in views if view.token is not None}

    def of(self, row: LiveRow) -> ScannedNode | None:
        if row.handle is not None:
            return self._by_handle.get(row.handle)
        return self._by_token.get(row.token)


def _differs(row: LiveRow, view: ScannedNode | None) -> bool:
    """Whether the listing says anything that the row does not."""
    if view is None or view.condition == _GONE:
        return row.absent_scans < SCANS_FOR_PROOF
    rate = _rate(view)
    priced = rate is not None and rate != row.billed_usd_per_hour
    return (
        row.handle is None
        or row.absent_scans > 0
        or priced
        or view.condition != row.condition
        or (view.reason or None) != row.condition_reason
        or view.fault != row.condition_fault
        or view.scope != row.condition_scope
        or dict(view.addresses or {}) != row.addresses
    )


def _rate(view: ScannedNode) -> float | None:
    """USD an hour; None: the provider does not tell. What waits for capacity costs nothing."""
    return 0.0 if view.condition == _QUEUED else view.billed_usd_per_hour


def _planned_rate(conn: Connection, row: LiveRow) -> float:
    """What it was to cost when it was ordered."""
    price = conn.execute(_OFFER, {"node": row.id}).scalar_one().get("price", {})
    return float(price.get("gpu_usd_per_hour", 0.0)) + float(price.get("disk_usd_per_hour", 0.0))


def _shown(view: ScannedNode) -> dict[str, Any]:
    return {
        "shown": view.condition,
        "why": view.reason or None,
        "by_fault": view.fault,
        "as_far_as": view.scope,
        "reached_at": dict(view.addresses or {}),
    }


def _known(row: LiveRow) -> dict[str, Any]:
    return {
        "shown": row.condition,
        "why": row.condition_reason,
        "by_fault": row.condition_fault,
        "as_far_as": row.condition_scope,
        "reached_at": dict(row.addresses),
    }


def _see(conn: Connection, row: LiveRow, view: ScannedNode, at: datetime) -> bool:
    found = row.handle is None
    if found:
        state = NodeState.BOOTING if row.state in (NodeState.CREATING, NodeState.UNKNOWN) else row.state
        conn.execute(_FOUND, {"node": row.id, "new_handle": view.handle, "new_state": state})
    left_queue = row.condition == _QUEUED and view.condition != _QUEUED
    rate = _rate(view)
    if left_queue and rate is None:
        rate = _planned_rate(conn, row)
    priced = rate is not None and rate != row.billed_usd_per_hour
    if priced:
        conn.execute(END_INTERVAL, {"node": row.id})
        conn.execute(_PRICED, {"node": row.id, "rate": rate})
    shown = _shown(view)
    moved = shown != _known(row)
    if moved or row.absent_scans:
        conn.execute(_SEEN, {"node": row.id, **shown, "at": at, "left_queue_at": at if left_queue else None})
    # A new price moves the end of the job's budget.
    return found or moved or priced or row.absent_scans >= SCANS_FOR_PROOF


def _miss(conn: Connection, row: LiveRow, at: datetime) -> bool:
    """Count one absence more, up to the proof; true when this one completes it."""
    if row.absent_scans >= SCANS_FOR_PROOF:
        return False
    proven = row.absent_scans + 1 >= SCANS_FOR_PROOF
    values: dict[str, Any] = {"node": row.id, "shown": _GONE if proven else row.condition, "at": at}
    conn.execute(_MISSED, values)
    return proven


def _past_deadline(row: LiveRow, at: datetime) -> bool:
    """A create call that may still be under way makes absence meaningless."""
    return row.handle is not None or (row.create_deadline_at is not None and at > row.create_deadline_at)
