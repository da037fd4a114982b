"""The ledger's open rows as scans need them: read often and for all nodes of an account, so without what is large."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from shunter_schemas.states import NodeState
from sqlalchemy import Connection, Text, bindparam, cast, or_, select

from shunter_store.node.ledger_rows import NodeRow
from shunter_store.tables import nodes


class LiveRow(NamedTuple):
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
    condition_fault: str | None
    condition_scope: str | None
    absent_scans: int
    create_deadline_at: datetime | None
    addresses: Mapping[str, str]
    """Rows share it: it is not to be changed."""


OpenRow: TypeAlias = LiveRow | NodeRow
"""For readers that do not mind."""

_COLUMNS: Final = [*(nodes.c[name] for name in LiveRow._fields[:-1]), cast(nodes.c.addresses, Text)]
_LIVE: Final = (
    select(*_COLUMNS)
    .where(nodes.c.instance == bindparam("of_instance"), nodes.c.state != NodeState.GONE)
    .order_by(nodes.c.id)
)
_LEAVING: Final = _LIVE.where(or_(nodes.c.state == NodeState.RELEASING, nodes.c.absent_scans == 1))
_LOCKED: Final = (
    select(*_COLUMNS)
    .where(nodes.c.id.in_(bindparam("ids", expanding=True)), nodes.c.state != NodeState.GONE)
    .order_by(nodes.c.id)
    .with_for_update(key_share=True)
)


def of_instance(conn: Connection, instance: str) -> list[LiveRow]:
    """Every row of a provider instance that is not closed. Locks nothing."""
    return _rows(conn.execute(_LIVE, {"of_instance": instance}))


def leaving(conn: Connection, instance: str) -> list[LiveRow]:
    """Those of them that are on their way out, or that the last listing did not show. Locks nothing."""
    return _rows(conn.execute(_LEAVING, {"of_instance": instance}))


def locked(conn: Connection, ids: Collection[str]) -> list[LiveRow]:
    """Those of the rows that are still open, as they are now, until this transaction ends."""
    return _rows(conn.execute(_LOCKED, {"ids": sorted(ids)})) if ids else []


def _rows(found: Iterable[Any]) -> list[LiveRow]:
    return [LiveRow._make((*row[:-1], _addresses(row[-1]))) for row in found]


@lru_cache(20_000)
def _addresses(text: str) -> Mapping[str, str]:
    """Read once: they hardly ever change, and a scan reads those of thousands of nodes."""
    addresses: dict[str, str] = json.loads(text)
    return addresses
