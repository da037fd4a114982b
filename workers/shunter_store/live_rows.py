"""The ledger's open rows as scans need them: read often and for all nodes of an account, so without what is large."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from shunter_schemas.states import NodeState
from sqlalchemy import Connection, bindparam, select

from shunter_store.ledger_rows import NodeRow
from shunter_store.rows import all_of, columns_of
from shunter_store.tables import nodes


@dataclass(frozen=True, slots=True)
class LiveRow:
    """A part of `NodeRow`."""

    id: str
    token: str
    job_id: str
    account: str
    state: NodeState
    handle: str | None
    billed_usd_per_hour: float
    created_at: datetime | None
    condition: str | None
    condition_reason: str | None
    absent_scans: int
    create_deadline_at: datetime | None
    addresses: dict[str, str]


OpenRow: TypeAlias = LiveRow | NodeRow
"""For readers that do not mind."""

_LIVE: Final = (
    select(*columns_of(LiveRow, nodes))
    .where(nodes.c.instance == bindparam("of_instance"), nodes.c.state != NodeState.GONE)
    .order_by(nodes.c.id)
)
_LOCKED: Final = (
    select(*columns_of(LiveRow, nodes))
    .where(nodes.c.id.in_(bindparam("ids", expanding=True)), nodes.c.state != NodeState.GONE)
    .order_by(nodes.c.id)
    .with_for_update(key_share=True)
)


def of_instance(conn: Connection, instance: str) -> list[LiveRow]:
    """Every row of a provider instance that is not closed. Locks nothing."""
    return all_of(LiveRow, conn.execute(_LIVE, {"of_instance": instance}))


def locked(conn: Connection, ids: Collection[str]) -> list[LiveRow]:
    """Those of the rows that are still open, as they are now, until this transaction ends."""
    return all_of(LiveRow, conn.execute(_LOCKED, {"ids": sorted(ids)})) if ids else []
