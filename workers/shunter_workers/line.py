"""The line of jobs that wait for slots of one shared host: by priority, then the longest waiting. No overtaking."""

from __future__ import annotations

from typing import Final

from shunter_schemas.states import NodeState, State
from shunter_store.jobs import JobRow
from shunter_store.tables import job_due, jobs, nodes
from sqlalchemy import Connection, and_, bindparam, or_, select, tuple_

from shunter_workers.view import resource_name

_SHOWN: Final = 50
"""How far back a place in the line is counted out exactly."""

_RESOURCE = jobs.c.waiting["resource"].as_string()
_ORDER = (jobs.c.priority, jobs.c.created_at, jobs.c.id)
_IN_LINE = (jobs.c.state == State.QUEUED, jobs.c.cancel_requested_at.is_(None), bindparam("resource") == _RESOURCE)
# Through the due rows: there are as many as jobs that live, whatever the number of jobs that ended.
_WAITING = select(jobs.c.id).select_from(job_due.join(jobs, jobs.c.id == job_due.c.job_id)).where(*_IN_LINE)
_AHEAD = (
    _WAITING.where(
        or_(
            jobs.c.priority < bindparam("urgency"),
            and_(
                jobs.c.priority == bindparam("urgency"),
                tuple_(jobs.c.created_at, jobs.c.id)
                < tuple_(bindparam("since", type_=jobs.c.created_at.type), bindparam("job")),
            ),
        ),
    )
    .order_by(*_ORDER)
    .limit(_SHOWN)
)
_FIRST = _WAITING.order_by(*_ORDER).limit(bindparam("most"))
_HOLDERS = (
    select(nodes.c.job_id)
    .where(
        nodes.c.instance == bindparam("instance"),
        nodes.c.slot_kind == bindparam("kind"),
        nodes.c.state != NodeState.GONE,
        nodes.c.job_id != bindparam("job"),
    )
    .distinct()
    .limit(_SHOWN)
)


def ahead_of(conn: Connection, job: JobRow, instance: str, slot_kind: str) -> list[str]:
    """Jobs that wait for the same slots and come before this one."""
    key = {
        "resource": resource_name(instance, slot_kind),
        "urgency": job.priority,
        "since": job.created_at,
        "job": job.id,
    }
    return list(conn.execute(_AHEAD, key).scalars())


def first_in_line(conn: Connection, instance: str, slot_kind: str, most: int) -> list[str]:
    """Whose turn it is when so many slots become free: no more jobs than slots."""
    return list(conn.execute(_FIRST, {"resource": resource_name(instance, slot_kind), "most": max(1, most)}).scalars())


def holders_of(conn: Connection, job: JobRow, instance: str, slot_kind: str) -> list[str]:
    """Other jobs that hold such slots."""
    return list(conn.execute(_HOLDERS, {"instance": instance, "kind": slot_kind, "job": job.id}).scalars())
