"""What is done when the database's clock was set: the moments of open rows and of live jobs move with it.

Whoever holds that clock against one that nobody sets (`clock_watch`) finds within seconds that it jumped. Then all
moments were written before the jump, but those of these few seconds:

- It was set back: they move back with it, so that ages, silences and costs stay what they are.
- It was set right again, after it had been set back: they move ahead with it.
- It went ahead for no reason that is known: they stay. A machine may have stood still while nodes ran and cost money.
- It went back from there: what was written before it had gone ahead is right again, and only what lies ahead of the
  clock now moves.

Each jump is a notice to the operator, and these tell how far the clock is from where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from shunter_schemas.states import NodeState
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Double,
    Update,
    case,
    or_,
    select,
    type_coerce,
    update,
)

from shunter_store.installation import notices
from shunter_store.job import due
from shunter_store.sql.sqltypes import UtcTime, db_now, seconds
from shunter_store.tables import charges, deployment, job_due, jobs, nodes
from shunter_store.tables import notices as notices_table

NOTABLE_S: Final = 60.0
"""A clock that jumps by less holds up nothing for longer than that."""
LONGEST_CREATE_S: Final = 900.0
"""No create call is waited for as long as this."""
NOTICE: Final = "clock.set"
REMEMBERED_S: Final = 86_400.0
"""A jump that was not undone for so long will not be."""
_SAME_S: Final = 5.0


_Test = Callable[[ColumnElement[float]], ColumnElement[bool]]


def _ahead(at: ColumnElement[float]) -> ColumnElement[bool]:
    return at > db_now()


def _before_the_jump(at: ColumnElement[float]) -> ColumnElement[bool]:
    return or_(_ahead(at), at < db_now() - seconds("within_s"))


def _shifted(column: Column[Any], condition: ColumnElement[bool]) -> ColumnElement[Any]:
    at = type_coerce(column, Double)
    return type_coerce(case((condition, at + seconds("by_s")), else_=at), UtcTime)


_MOMENTS: Final = (
    nodes.c.intended_at,
    nodes.c.created_at,
    nodes.c.ready_at,
    nodes.c.releasing_at,
    nodes.c.accrued_at,
    nodes.c.desired_at,
    nodes.c.last_sync_at,
    nodes.c.scanned_at,
)
_DEADLINES: Final = {nodes.c.create_deadline_at: LONGEST_CREATE_S, nodes.c.stop_at: None}
"""With how far ahead they may lie; None: as far as they like."""
_OPEN: Final = nodes.c.state != NodeState.GONE
_LIVE: Final = jobs.c.id.in_(job_due.select().with_only_columns(job_due.c.job_id))


def _of_nodes(is_earlier: _Test) -> Update:
    moved = {column.name: _shifted(column, is_earlier(type_coerce(column, Double))) for column in _MOMENTS}
    for column, longest_s in _DEADLINES.items():
        at = type_coerce(column, Double)
        passed = at < db_now() - seconds("within_s")
        too_far = at > db_now() + longest_s if longest_s is not None else None
        moved[column.name] = _shifted(column, passed if too_far is None else or_(passed, too_far))
    return update(nodes).where(_OPEN).values(moved)


def _of_jobs(is_earlier: _Test) -> Update:
    condition = is_earlier(type_coerce(jobs.c.started_at, Double))
    return update(jobs).where(_LIVE).values(started_at=_shifted(jobs.c.started_at, condition))


_OVER: Final = _before_the_jump(type_coerce(charges.c.until, Double))
_OF_CHARGES: Final = (
    update(charges)
    .where(charges.c.node_id.in_(select(nodes.c.id).where(_OPEN)))
    .values(since=_shifted(charges.c.since, _OVER), until=_shifted(charges.c.until, _OVER))
)
_ALL_OF_NODES: Final = _of_nodes(_before_the_jump)
_ALL_OF_JOBS: Final = _of_jobs(_before_the_jump)
_AHEAD_OF_NODES: Final = _of_nodes(_ahead)
_AHEAD_OF_JOBS: Final = _of_jobs(_ahead)
_LOCK: Final = select(deployment.c.id).with_for_update()
_JUMPS: Final = (
    select(db_now() - type_coerce(notices_table.c.at, Double), notices_table.c.data)
    .where(notices_table.c.type == NOTICE)
    .order_by(notices_table.c.id.desc())
    .limit(100)
)


def follow_jump(conn: Connection, *, by_s: float, within_s: float) -> int | None:
    """The database's clock jumped by so much (negative: back) within the last so many seconds.

    Returns how many jobs look anew, None: another process has seen the same jump.
    """
    conn.execute(_LOCK)
    known = [(float(abs(age_s)), float(data["by_s"])) for age_s, data in conn.execute(_JUMPS)]
    if any(age_s <= within_s and abs(other_s - by_s) < _SAME_S for age_s, other_s in known):
        return None
    notices.put(conn, NOTICE, {"by_s": round(by_s, 3)})
    off_s = sum(other_s for age_s, other_s in known if age_s < REMEMBERED_S)
    shift_s = by_s if by_s < 0 else min(by_s, max(0.0, -off_s))
    return _move(conn, {"by_s": shift_s, "within_s": within_s}, everything=by_s > 0 or off_s < NOTABLE_S)


def _move(conn: Connection, shift: Mapping[str, float], *, everything: bool) -> int:
    """In the order of everybody's locks: nodes, job_due, jobs."""
    is_notable = abs(shift["by_s"]) >= NOTABLE_S
    if is_notable:
        conn.execute(_ALL_OF_NODES if everything else _AHEAD_OF_NODES, shift)
    if is_notable and everything:
        conn.execute(_OF_CHARGES, shift)
    woken = due.wake_all(conn)
    if is_notable:
        conn.execute(_ALL_OF_JOBS if everything else _AHEAD_OF_JOBS, shift)
    return woken
