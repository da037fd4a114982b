"""Nodes that are reached by SSH: which there are, how far they were brought up, and what a job's keys are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shunter_schemas.states import TERMINAL_STATES, NodeState
from sqlalchemy import ColumnElement, Connection, Double, bindparam, delete, exists, func, select, type_coerce

from shunter_store.job import due
from shunter_store.node.ledger_rows import NodeRow
from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import PerDialect, db_now
from shunter_store.tables import bootstraps, job_keys, jobs, nodes


@dataclass(frozen=True, slots=True)
class BootstrapRow:
    """How far the core came with one node."""

    node_id: str
    phase: str
    """`waiting`, `probing`, `uploading`, `starting`, `started`, `refused`."""
    detail: str
    refused: str | None
    """Why the node is not accepted; None: it is, or nobody knows yet."""
    facts: dict[str, Any]
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class ReachedNode:
    """As much of a node as is looked at every moment."""

    id: str
    job_id: str
    instance: str
    state: NodeState
    silent_s: float
    """Since its last exchange; 0 before the first."""


_SEEN: Final[list[ColumnElement[Any]]] = [
    nodes.c.id,
    nodes.c.job_id,
    nodes.c.instance,
    nodes.c.state,
    func.coalesce(db_now() - type_coerce(nodes.c.last_sync_at, Double), 0.0),
]
_REACHED = (
    select(*_SEEN)
    .where(
        nodes.c.instance.in_(bindparam("instances", expanding=True)),
        nodes.c.state.in_([NodeState.BOOTING, NodeState.READY, NodeState.RELEASING]),
        nodes.c.handle.is_not(None),
    )
    .order_by(nodes.c.id)
)
_OF_JOB = select(*columns_of(BootstrapRow, bootstraps)).where(
    bootstraps.c.node_id.in_(select(nodes.c.id).where(nodes.c.job_id == bindparam("job")))
)
_REFUSED = (
    select(bootstraps.c.node_id, bootstraps.c.refused)
    .join(nodes, nodes.c.id == bootstraps.c.node_id)
    .where(nodes.c.job_id == bindparam("job"), nodes.c.state != NodeState.GONE, bootstraps.c.refused.is_not(None))
)
_OF_NODE = select(*columns_of(BootstrapRow, bootstraps)).where(bootstraps.c.node_id == bindparam("node"))
_KEYS = select(job_keys.c.sealed).where(job_keys.c.job_id == bindparam("job"))
_FORGET_KEYS = delete(job_keys).where(
    ~exists().where(nodes.c.job_id == job_keys.c.job_id, nodes.c.state != NodeState.GONE),
    ~exists().where(jobs.c.id == job_keys.c.job_id, jobs.c.state.not_in(sorted(TERMINAL_STATES))),
)


def _upsert(insert: Any) -> Any:
    made = insert(bootstraps).values(changed_at=db_now())
    changed = {name: made.excluded[name] for name in ("phase", "detail", "refused", "facts", "changed_at")}
    return made.on_conflict_do_update(index_elements=["node_id"], set_=changed)


def _insert_keys(insert: Any) -> Any:
    return insert(job_keys).values(created_at=db_now()).on_conflict_do_nothing(index_elements=["job_id"])


_PUT: Final = PerDialect(_upsert)
_KEEP_KEYS: Final = PerDialect(_insert_keys)


def reached_nodes(conn: Connection, instances: Collection[str]) -> list[ReachedNode]:
    """Nodes of these instances that exist, as far as the ledger knows."""
    return all_of(ReachedNode, conn.execute(_REACHED, {"instances": sorted(instances)}))


def get(conn: Connection, node_id: str) -> BootstrapRow | None:
    """How far one node is, if anything was begun."""
    row = conn.execute(_OF_NODE, {"node": node_id}).one_or_none()
    return None if row is None else BootstrapRow(*row)


def refusals_of(conn: Connection, job_id: str) -> dict[str, str]:
    """Nodes that were not accepted, by id, with the cause."""
    return {row.node_id: row.refused for row in conn.execute(_REFUSED, {"job": job_id})}


def bootstraps_of(conn: Connection, job_id: str) -> dict[str, BootstrapRow]:
    """By node id."""
    return {row.node_id: row for row in all_of(BootstrapRow, conn.execute(_OF_JOB, {"job": job_id}))}


def note(
    conn: Connection,
    node: NodeRow,
    *,
    phase: str,
    detail: str = "",
    refused: str | None = None,
    facts: Mapping[str, Any],
) -> None:
    """Say how far a node is; one that is refused wakes its job."""
    values = {"node_id": node.id, "phase": phase, "detail": detail, "refused": refused, "facts": dict(facts)}
    conn.execute(_PUT.on(conn), values)
    if refused is not None:
        due.wake(conn, [node.job_id])


def sealed_keys(conn: Connection, job_id: str) -> str | None:
    """A job's keys as they are kept; None: it has none (any more)."""
    found: str | None = conn.execute(_KEYS, {"job": job_id}).scalar()
    return found


def keep_keys(conn: Connection, job_id: str, sealed: str) -> str:
    """Keep these, unless the job has some already; returns those that it has."""
    conn.execute(_KEEP_KEYS.on(conn), {"job_id": job_id, "sealed": sealed})
    kept = sealed_keys(conn, job_id)
    assert kept is not None
    return kept


def forget_keys(conn: Connection) -> int:
    """Destroy the keys of jobs that have ended and of which no node is left; how many went."""
    return conn.execute(_FORGET_KEYS).rowcount
