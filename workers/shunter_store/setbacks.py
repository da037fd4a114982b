"""What is done when the database's clock was set back: moments of the past that lie ahead of it now are moved with it.

They are the ones of which it is certain by which clock they were written. Older ones stay; what is counted from them
counts less than it should, as leases that were granted last longer: that ends no training and closes no row too soon.
"""

from __future__ import annotations

from typing import Any, Final

from shunter_schemas.states import NodeState
from sqlalchemy import Column, ColumnElement, Connection, Double, Update, bindparam, case, type_coerce, update

from shunter_store import due
from shunter_store.sqltypes import UtcTime, db_now
from shunter_store.tables import job_due, jobs, nodes

LONGEST_CREATE_S: Final = 900.0
"""No create call is waited for as long as this."""


def _moved(column: Column[Any]) -> ColumnElement[Any]:
    return _moved_beyond(column, db_now())


def _moved_beyond(column: Column[Any], latest: ColumnElement[float]) -> ColumnElement[Any]:
    at = type_coerce(column, Double)
    return type_coerce(case((at > latest, at - bindparam("by_s", type_=Double)), else_=at), UtcTime)


_OF_NODES: Final = (
    nodes.c.intended_at,
    nodes.c.created_at,
    nodes.c.ready_at,
    nodes.c.releasing_at,
    nodes.c.accrued_at,
    nodes.c.desired_at,
    nodes.c.last_sync_at,
    nodes.c.scanned_at,
)
_MOVE_NODES: Final[Update] = (
    update(nodes)
    .where(nodes.c.state != NodeState.GONE)
    .values(
        {
            **{column.name: _moved(column) for column in _OF_NODES},
            nodes.c.create_deadline_at.name: _moved_beyond(nodes.c.create_deadline_at, db_now() + LONGEST_CREATE_S),
        }
    )
)
_LIVE = jobs.c.id.in_(job_due.select().with_only_columns(job_due.c.job_id))
_MOVE_JOBS: Final[Update] = update(jobs).where(_LIVE).values(started_at=_moved(jobs.c.started_at))


def set_back(conn: Connection, *, by_s: float) -> int:
    """Move the moments of open rows and of live jobs by so much, and make every job due that waits for a moment.

    Returns how many were woken.
    """
    conn.execute(_MOVE_NODES, {"by_s": by_s})
    woken = due.wake_all(conn)
    conn.execute(_MOVE_JOBS, {"by_s": by_s})
    return woken
