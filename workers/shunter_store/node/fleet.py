"""Nodes of every job: what bills now, and what ever did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from shunter_schemas.states import NodeState
from sqlalchemy import Connection, and_, bindparam, func, or_, select, tuple_, type_coerce

from shunter_store.accounts.money import MICRO
from shunter_store.node.ledger_rows import ACCRUED, COLUMNS, NodeRow
from shunter_store.sql.sqltypes import UtcTime
from shunter_store.tables import jobs, nodes, payers


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Which nodes of the ledger. `billing`: those that may cost something at this moment."""

    billing: bool = False
    instance: str | None = None
    state: NodeState | None = None
    job_id: str | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A row of the ledger, for whom it is, and what it has cost."""

    row: NodeRow
    project: str | None
    job_name: str | None
    cost_usd: float


_BEGUN: Final = nodes.c.create_deadline_at.is_not(None) | nodes.c.handle.is_not(None)
_BILLING: Final = and_(nodes.c.state != NodeState.GONE, nodes.c.billed_usd_per_hour > 0, _BEGUN)
_ALL: Final[Any] = (
    select(
        *COLUMNS,
        func.coalesce(jobs.c.project, payers.c.project),
        func.coalesce(jobs.c.name, payers.c.name),
        func.round(ACCRUED * MICRO) / float(MICRO),
    )
    .select_from(
        nodes.outerjoin(jobs, jobs.c.id == nodes.c.job_id).outerjoin(payers, payers.c.job_id == nodes.c.job_id)
    )
    .order_by(nodes.c.intended_at.desc(), nodes.c.id.desc())
    .limit(bindparam("limit"))
)
_BY_INSTANCE: Final = (
    select(nodes.c.instance, func.count(), func.sum(nodes.c.billed_usd_per_hour))
    .select_from(nodes.outerjoin(jobs, jobs.c.id == nodes.c.job_id))
    .where(_BILLING)
    .group_by(nodes.c.instance)
)
_OF_PROJECT: Final = jobs.c.project == bindparam("of_project")
_NEWEST: Final = tuple_(nodes.c.intended_at, nodes.c.id) < tuple_(
    type_coerce(bindparam("before_at", type_=UtcTime), UtcTime), bindparam("before_id")
)
_WIDTH: Final = len(fields(NodeRow))


@dataclass(frozen=True, slots=True)
class Billing:
    """What bills at one provider instance now."""

    nodes: int
    usd_per_hour: float


def billing(conn: Connection, *, project: str | None = None) -> dict[str, Billing]:
    """By instance: what may cost something at this moment, of one project or of all."""
    if project is None:
        rows = conn.execute(_BY_INSTANCE)
    else:
        rows = conn.execute(_BY_INSTANCE.where(_OF_PROJECT), {"of_project": project})
    return {instance: Billing(count, float(rate)) for instance, count, rate in rows}


def page(
    conn: Connection, where: NodeFilter, *, limit: int, before: tuple[datetime, str] | None = None
) -> list[FleetNode]:
    """Rows that fit, newest first; `before`: when the last one of the page before was intended, and its id."""
    statement, values = _chosen(where)
    if before is not None:
        statement = statement.where(_NEWEST)
        values |= {"before_at": before[0], "before_id": before[1]}
    return [_node(row) for row in conn.execute(statement, {**values, "limit": limit})]


def _chosen(where: NodeFilter) -> tuple[Any, dict[str, Any]]:
    statement, values = _ALL, dict[str, Any]()
    if where.billing:
        statement = statement.where(_BILLING)
    if where.instance is not None:
        statement, values = statement.where(nodes.c.instance == bindparam("of")), {**values, "of": where.instance}
    if where.state is not None:
        statement = statement.where(nodes.c.state == where.state)
    if where.job_id is not None:
        statement, values = statement.where(nodes.c.job_id == bindparam("job")), {**values, "job": where.job_id}
    if where.project is not None:
        mine = or_(jobs.c.project == bindparam("project"), payers.c.project == bindparam("project"))
        statement, values = statement.where(mine), {**values, "project": where.project}
    return statement, values


def _node(row: Sequence[Any]) -> FleetNode:
    project, job_name, cost_usd = row[_WIDTH:]
    return FleetNode(NodeRow(*row[:_WIDTH]), project, job_name, float(cost_usd))
