"""SQL that only the API asks: what moves while somebody watches, and signs of life."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from shunter_schemas.states import State
from shunter_store.sql.sqltypes import UtcTime, db_now
from shunter_store.tables import jobs, leases, outbox, progress
from sqlalchemy import Connection, Double, bindparam, func, select, type_coerce

_CHUNK = 500
"""Values of one IN list."""


class Head(NamedTuple):
    """What moves when a job changes, and when it only gets on."""

    revision: int
    event_seq: int
    state: State
    reported_at: datetime | None
    log_lines: int = 0
    metric_seq: int = 0

    def is_changed(self, before: Head | None) -> bool:
        """Whether the job itself moved."""
        return before is None or self[:3] != before[:3]

    def is_moved(self, before: Head | None) -> bool:
        """Whether the job or its progress moved."""
        return before is None or self[:4] != before[:4]


_REPORTED = select(func.max(progress.c.at)).where(progress.c.job_id == jobs.c.id).correlate(jobs).scalar_subquery()
_HEADS = select(
    jobs.c.id,
    jobs.c.revision,
    jobs.c.event_seq,
    jobs.c.state,
    type_coerce(_REPORTED, UtcTime).label("reported_at"),
    jobs.c.log_lines,
    jobs.c.metric_seq,
).where(jobs.c.id.in_(bindparam("ids", expanding=True)))
_OWNED = select(jobs.c.id).where(
    jobs.c.project == bindparam("of_project"), jobs.c.id.in_(bindparam("ids", expanding=True))
)
_OLDEST_HINT_S = select(db_now() - type_coerce(func.min(outbox.c.created_at), Double))
_LEASES = select(leases.c.name).where(leases.c.owner.is_not(None), leases.c.until >= db_now())


def heads(conn: Connection, job_ids: Sequence[str]) -> dict[str, Head]:
    """The heads of those jobs that exist."""
    return {row.id: Head(*row[1:]) for ids in _chunks(job_ids) for row in conn.execute(_HEADS, {"ids": ids})}


def owned(conn: Connection, project: str, job_ids: Sequence[str]) -> set[str]:
    """Those of these jobs that exist and are the project's."""
    found = conn.execute(_OWNED, {"of_project": project, "ids": list(job_ids)}).scalars() if job_ids else ()
    return set(found)


def oldest_hint_s(conn: Connection) -> float | None:
    """How long the oldest hint waits to be sent to the broker; None: none waits."""
    found = conn.execute(_OLDEST_HINT_S).scalar()
    return None if found is None else float(found)


def live_leases(conn: Connection) -> list[str]:
    """Names of the singletons that some worker holds at this moment."""
    return [str(name) for name in conn.execute(_LEASES).scalars()]


def _chunks(ids: Sequence[str]) -> list[list[str]]:
    return [list(ids[start : start + _CHUNK]) for start in range(0, len(ids), _CHUNK)]
