"""Jobs: accept and read one. See `job_lists` for many, `wishes` for what users ask of one, `steps` for its moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

from shunter_schemas.states import Health, Reason, State
from sqlalchemy import Connection, bindparam, select

from shunter_store.job import events, outbox
from shunter_store.job import labels as job_labels
from shunter_store.sql.bulk import BulkInsert, BulkInserts
from shunter_store.sql.rows import columns_of
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import job_due, jobs


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as it stands. `revision` grows with every change of it; progress and nodes are kept elsewhere."""

    id: str
    project: str
    created_by: str
    name: str
    labels: dict[str, str]
    priority: int
    spec: dict[str, Any]
    state: State
    reason: Reason | None
    message: str | None
    health: Health
    outcome: State | None
    cancel_requested_at: datetime | None
    generation: int
    revision: int
    event_seq: int
    provider: str | None
    plan: dict[str, Any] | None
    waiting: dict[str, Any] | None
    facts: dict[str, Any]
    user_restarts: int
    node_recoveries: int
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    released_at: datetime | None
    pause_requested_at: datetime | None = None
    retry_of: str | None = None
    resumes_from_step: int | None = None
    move_wish: dict[str, Any] | None = None
    """Parts of the document that shall take the place of the job's own, once its ranks have stopped."""
    move_requested_at: datetime | None = None
    document_version: int = 1
    """Grows with every move."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that shall be accepted."""

    id: str
    project: str
    created_by: str
    name: str
    labels: Mapping[str, str]
    priority: int
    """1 high, 2 normal, 3 low."""
    spec: Mapping[str, Any]
    spec_text: str
    """The document as the user wrote it."""


COLUMNS: Final = columns_of(JobRow, jobs)
URGENCIES: Final[Mapping[str, int]] = {"high": 1, "normal": 2, "low": 3}
"""Priorities of documents as numbers: the lower one goes first."""

_INITIAL: Final[Mapping[str, Any]] = {
    "state": State.QUEUED,
    "health": Health.OK,
    "generation": 1,
    "revision": 1,
    "event_seq": 1,
    "facts": {},
    "user_restarts": 0,
    "node_recoveries": 0,
    "document_version": 1,
}
_GIVEN: Final = tuple(field.name for field in fields(NewJob))
_NOT_YET: Final[dict[str, Any]] = {
    field.name: None for field in fields(JobRow) if field.name not in (*_GIVEN, *_INITIAL, "created_at", "updated_at")
}
_INSERT_JOBS = BulkInsert(jobs, (*_GIVEN, "created_at", "updated_at"), **_INITIAL, log_lines=0, checkpoint_wish=0)
_INSERT_DUE = BulkInsert(job_due, ("job_id", "urgency", "next_at"), wake=1, seen_wake=0, fence=0)
_ACCEPT = BulkInserts(_INSERT_JOBS, job_labels.INSERT_ALL, _INSERT_DUE, events.INSERT_FIRST, outbox.PUT_MANY)
_NOW = select(db_now())
_GET = select(*COLUMNS).where(jobs.c.id == bindparam("job"))
_GET_LOCKED = _GET.with_for_update(key_share=True)
_TEXT = select(jobs.c.spec_text).where(jobs.c.id == bindparam("job"))


def now(conn: Connection) -> float:
    """The database's clock."""
    return conn.execute(_NOW).scalar_one()


def as_accepted(new: NewJob, at: float) -> JobRow:
    """The job as `insert_all` writes it."""
    moment = datetime.fromtimestamp(at, UTC)
    given = _given(new)
    del given["spec_text"]
    return JobRow(**given, **_INITIAL, **_NOT_YET, created_at=moment, updated_at=moment)


def insert_all(conn: Connection, new: Sequence[NewJob], at: float) -> None:
    """Accept jobs: their rows, their due rows (due now), the event `job.created` and a hint for each.

    Args:
        at: what `now` said in this transaction.
    """
    if not new:
        return
    told = [(job.id, {"name": job.name, "created_by": job.created_by}) for job in new]
    _ACCEPT.run(
        conn,
        [_given(job) | {"created_at": at, "updated_at": at} for job in new],
        job_labels.rows_of(new, at),
        [{"job_id": job.id, "urgency": job.priority, "next_at": at} for job in new],
        [{"job_id": job_id, "type": "job.created", "data": data, "at": at} for job_id, data in told],
        [{"created_at": at}] * len(new),
    )


def insert(  # noqa: PLR0913 - the columns of a job, by keyword
    conn: Connection,
    *,
    job_id: str,
    project: str,
    created_by: str,
    spec: Mapping[str, Any],
    spec_text: str,
    name: str,
    labels: Mapping[str, str],
    priority: int,
) -> JobRow:
    """Accept one job (see `insert_all`)."""
    new = NewJob(job_id, project, created_by, name, labels, priority, spec, spec_text)
    at = now(conn)
    insert_all(conn, [new], at)
    return as_accepted(new, at)


def get(conn: Connection, job_id: str) -> JobRow | None:
    """The job, or None."""
    row = conn.execute(_GET, {"job": job_id}).one_or_none()
    return None if row is None else JobRow(*row)


def document_text(conn: Connection, job_id: str) -> str | None:
    """The document as the user wrote it."""
    return conn.execute(_TEXT, {"job": job_id}).scalar()


def get_locked(conn: Connection, job_id: str) -> JobRow | None:
    """The job, its row locked until the transaction ends. Lock order everywhere: nodes, job_due, jobs."""
    row = conn.execute(_GET_LOCKED, {"job": job_id}).one_or_none()
    return None if row is None else JobRow(*row)


def _given(new: NewJob) -> dict[str, Any]:
    return {name: getattr(new, name) for name in _GIVEN}
