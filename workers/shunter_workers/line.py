"""The line of jobs that wait for slots of one shared host. No overtaking.

First those that lost their node in the middle of a run: the slots that become free were theirs. Then by priority, then
the longest waiting.
"""

from __future__ import annotations

from typing import Final

from shunter_schemas.states import NodeState, State
from shunter_store.job.jobs import JobRow
from shunter_store.tables import job_due, jobs, nodes
from sqlalchemy import Connection, Integer, and_, bindparam, case, exists, or_, select, tuple_

from shunter_workers.view import resource_name

_SHOWN: Final = 50
"""How far back a place in the line is counted out exactly."""

_QUEUED = and_(jobs.c.state == State.QUEUED, jobs.c.waiting["resource"].as_string() == bindparam("resource"))
_BEREFT = and_(
    jobs.c.state == State.RECOVERING,
    jobs.c.provider == bindparam("instance"),
    jobs.c.plan["slot_kind"].as_string() == bindparam("kind"),
    ~exists().where(nodes.c.job_id == jobs.c.id, nodes.c.state == NodeState.READY),
)
_TURN = case((jobs.c.state == State.RECOVERING, 0), else_=1)
_ORDER = (_TURN, jobs.c.priority, jobs.c.created_at, jobs.c.id)
# Through the due rows: there are as many as jobs that live, whatever the number of jobs that ended.
_WAITING = (
    select(jobs.c.id)
    .select_from(job_due.join(jobs, jobs.c.id == job_due.c.job_id))
    .where(jobs.c.cancel_requested_at.is_(None), jobs.c.pause_requested_at.is_(None), or_(_QUEUED, _BEREFT))
    .order_by(*_ORDER)
    .limit(bindparam("most"))
)
_AHEAD = _WAITING.where(
    tuple_(*_ORDER)
    < tuple_(
        bindparam("turn", type_=Integer),
        bindparam("urgency", type_=Integer),
        bindparam("since", type_=jobs.c.created_at.type),
        bindparam("job", type_=jobs.c.id.type),
    )
)
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
    place = {
        "turn": 0 if job.state is State.RECOVERING else 1,
        "urgency": job.priority,
        "since": job.created_at,
        "job": job.id,
    }
    return list(conn.execute(_AHEAD, {**_of(instance, slot_kind), **place, "most": _SHOWN}).scalars())


def first_in_line(conn: Connection, instance: str, slot_kind: str, most: int) -> list[str]:
    """Whose turn it is when so many slots become free: no more jobs than slots."""
    return list(conn.execute(_WAITING, {**_of(instance, slot_kind), "most": max(1, most)}).scalars())


def holders_of(conn: Connection, job: JobRow, instance: str, slot_kind: str) -> list[str]:
    """Other jobs that hold such slots."""
    return list(conn.execute(_HOLDERS, {"instance": instance, "kind": slot_kind, "job": job.id}).scalars())


def _of(instance: str, slot_kind: str) -> dict[str, str]:
    return {"resource": resource_name(instance, slot_kind), "instance": instance, "kind": slot_kind}
