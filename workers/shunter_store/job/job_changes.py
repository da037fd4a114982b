"""Jobs of a project that changed or were deleted: found by when they were, for readers who follow all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from shunter_schemas.states import Reason, State
from sqlalchemy import Connection, bindparam, func, select, tuple_

from shunter_store.report import metrics
from shunter_store.report.metrics import ProgressRow
from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import deleted_jobs, jobs, progress

_IDS_AT_ONCE: Final = 500

Moment = tuple[float, str]
"""A place among changes: epoch seconds by the database's clock, and the id of a job."""


@dataclass(frozen=True, slots=True)
class ChangedJob:
    """A job as it is now."""

    id: str
    name: str
    state: State
    reason: Reason | None
    created_at: datetime
    finished_at: datetime | None
    pause_requested_at: datetime | None
    revision: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class DeletedJob:
    """A job that has no record any more, and when that was deleted."""

    id: str
    updated_at: datetime


_COLUMNS: Final = columns_of(ChangedJob, jobs)
_NOW: Final = select(db_now())
_CHANGED: Final = (
    select(*_COLUMNS)
    .where(
        jobs.c.project == bindparam("of_project"),
        tuple_(jobs.c.updated_at, jobs.c.id)
        > tuple_(bindparam("after_at", type_=jobs.c.updated_at.type), bindparam("after_id")),
    )
    .order_by(jobs.c.updated_at, jobs.c.id)
    .limit(bindparam("limit"))
)
_DELETED: Final = (
    select(*(deleted_jobs.c[name] for name in ("id", "deleted_at")))
    .where(
        deleted_jobs.c.project == bindparam("of_project"),
        tuple_(deleted_jobs.c.deleted_at, deleted_jobs.c.id)
        > tuple_(bindparam("after_at", type_=deleted_jobs.c.deleted_at.type), bindparam("after_id")),
    )
    .order_by(deleted_jobs.c.deleted_at, deleted_jobs.c.id)
    .limit(bindparam("limit"))
)
_BY_ID: Final = select(*_COLUMNS).where(jobs.c.id.in_(bindparam("ids", expanding=True)))
_NEWEST: Final = (
    select(progress.c.job_id, func.max(progress.c.generation).label("generation"))
    .join_from(progress, jobs, jobs.c.id == progress.c.job_id)
    .where(jobs.c.project == bindparam("of_project"), jobs.c.state == State.RUNNING)
    .group_by(progress.c.job_id)
    .subquery()
)
_RUNNING: Final = (
    select(jobs.c.id, jobs.c.revision, progress.c.generation, progress.c.step)
    .join_from(_NEWEST, jobs, jobs.c.id == _NEWEST.c.job_id)
    .join(progress, (progress.c.job_id == _NEWEST.c.job_id) & (progress.c.generation == _NEWEST.c.generation))
    .order_by(jobs.c.id)
)


def now(conn: Connection) -> float:
    """The database's clock."""
    return float(conn.execute(_NOW).scalar_one())


def changed(
    conn: Connection, project: str, after: Moment, limit: int
) -> tuple[list[ChangedJob | DeletedJob], dict[str, ProgressRow]]:
    """Jobs that changed later or were deleted, in the order of that, and where those are that reported it."""
    at, id_ = after
    where = {"of_project": project, "after_at": datetime.fromtimestamp(max(0.0, at), UTC), "after_id": id_}
    rows = all_of(ChangedJob, conn.execute(_CHANGED, {**where, "limit": limit}))
    gone = all_of(DeletedJob, conn.execute(_DELETED, {**where, "limit": limit}))
    both: list[ChangedJob | DeletedJob] = [*rows, *gone]
    # Of each the first ones: what is cut off of the two together comes behind all that is kept.
    found = sorted(both, key=lambda row: (row.updated_at, row.id))[:limit]
    return found, metrics.progress(conn, [row.id for row in found if isinstance(row, ChangedJob)])


def of(conn: Connection, job_ids: Sequence[str]) -> tuple[list[ChangedJob], dict[str, ProgressRow]]:
    """These jobs, those that exist."""
    rows: list[ChangedJob] = []
    for start in range(0, len(job_ids), _IDS_AT_ONCE):
        rows += all_of(ChangedJob, conn.execute(_BY_ID, {"ids": list(job_ids[start : start + _IDS_AT_ONCE])}))
    return rows, metrics.progress(conn, [row.id for row in rows])


def running(conn: Connection, project: str) -> dict[str, tuple[int, int, int]]:
    """Revision, generation and step of every running job that reported a step."""
    rows: Sequence[Any] = conn.execute(_RUNNING, {"of_project": project}).all()
    return {id_: (revision, generation, step) for id_, revision, generation, step in rows}
