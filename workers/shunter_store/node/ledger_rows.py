"""The shapes of the node ledger, and what a node has cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shunter_schemas.states import NodeState
from sqlalchemy import Double, bindparam, case, func, insert, select, type_coerce

from shunter_store.sql.rows import columns_of
from shunter_store.sql.sqltypes import UtcTime, db_now
from shunter_store.tables import charges, nodes


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node that shall exist. The caller makes the token (`shn-…`) and keeps or derives its sync token."""

    rank: int
    token: str
    sync_token_hash: str
    instance: str
    account: str
    offer: Mapping[str, Any]
    billed_usd_per_hour: float = 0.0
    slot_kind: str | None = None
    """With `slot_indices`: which kind of slot of a shared host, e.g. `cpu` or `gpu`."""
    slot_indices: Sequence[int] = ()
    lease_s: float | None = None
    """Dead-man lease that each sync renews; None: no expiry."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One line of the ledger, with what scans and the node itself say of it."""

    id: str
    token: str
    job_id: str
    generation: int
    rank: int
    instance: str
    account: str
    offer: dict[str, Any]
    slot_kind: str | None
    slot_indices: list[int]
    state: NodeState
    handle: str | None
    billed_usd_per_hour: float
    intended_at: datetime
    created_at: datetime | None
    ready_at: datetime | None
    releasing_at: datetime | None
    gone_at: datetime | None
    reason: str | None
    condition: str | None
    """`NodeCondition` of the last complete or partial scan that saw it; `gone` when a complete one did not."""
    condition_reason: str | None
    scanned_at: datetime | None
    absent_scans: int
    create_deadline_at: datetime | None
    lease_s: float | None
    lease_granted_until: datetime | None
    stop_at: datetime | None
    desired_phase: str
    desired_generation: int
    desired_reason: str | None
    desired_at: datetime
    run_generation: int
    """The last generation that this node was told to run; 0: none."""
    assignment: dict[str, Any] | None
    journal_id: str | None
    acknowledged: int
    last_sync_at: datetime | None
    status: dict[str, Any]
    boot: dict[str, Any] | None
    addresses: dict[str, str]
    condition_fault: str | None = None
    """Why the provider says that it failed: a `Fault` of the contract. None: it does not tell."""
    condition_scope: str | None = None
    """How far that fault reaches: a `Scope`."""
    queued_until: datetime | None = None
    """When a listing first showed it past the provider's queue; None: it was in none, or still is."""


@dataclass(frozen=True, slots=True)
class ScannedNode:
    """A node as a provider's listing shows it (the fields of the contract's `NodeView`)."""

    handle: str
    token: str | None
    condition: str
    reason: str = ""
    addresses: Mapping[str, str] | None = None
    billed_usd_per_hour: float | None = None
    fault: str | None = None
    scope: str | None = None
    """Of the fault; None without one."""


COLUMNS: Final = columns_of(NodeRow, nodes)
END_INTERVAL: Final = insert(charges).from_select(
    ["node_id", "since", "until", "usd_per_hour"],
    select(nodes.c.id, nodes.c.accrued_at, type_coerce(db_now(), UtcTime), nodes.c.billed_usd_per_hour).where(
        nodes.c.id == bindparam("node"),
        nodes.c.accrued_at < db_now(),
        nodes.c.gone_at.is_(None),
        nodes.c.billed_usd_per_hour > 0,
    ),
    include_defaults=False,
)
"""Keep the interval of a node's cost that runs, in the transaction that ends it and before its row is changed."""

_AGE_H: Final = (
    func.coalesce(type_coerce(nodes.c.gone_at, Double), db_now()) - type_coerce(nodes.c.accrued_at, Double)
) / 3600
ACCRUED: Final = nodes.c.accrued_usd + case(
    ((nodes.c.accrued_at < db_now()) & nodes.c.gone_at.is_(None), nodes.c.billed_usd_per_hour * _AGE_H), else_=0.0
)
"""What a node has cost up to now: the intervals that are over, and the one that runs.

One whose begin lies ahead of the clock, which was set back then, costs nothing as yet.
"""
COST_USD: Final = func.coalesce(func.sum(func.round(ACCRUED * 1_000_000)), 0) / 1_000_000.0
"""What several nodes have cost: each in whole micro-dollars, so that every sum over the same nodes is the same."""
