"""Jobs: accept, read, list, cancel. What moves a job on is `steps`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shunter_schemas.states import Health, Reason, State
from sqlalchemy import Connection, Select, and_, bindparam, select, tuple_, type_coerce, update
from sqlalchemy import func as sql
from sqlalchemy import insert as insert_into

from shunter_store import due, events, outbox
from shunter_store.errors import Conflict, NotFound
from shunter_store.rows import all_of, columns_of
from shunter_store.sqltypes import Json, db_now
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


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a list: without the document and what else is long, which would cost more than all the rest."""

    id: str
    name: str
    labels: dict[str, str]
    state: State
    reason: Reason | None
    created_at: datetime
    finished_at: datetime | None


COLUMNS: Final = columns_of(JobRow, jobs)
LINE_COLUMNS: Final = columns_of(JobLine, jobs)

_INSERT_JOB = (
    insert_into(jobs)
    .values(
        state=State.QUEUED,
        health=Health.OK,
        generation=1,
        revision=1,
        event_seq=1,
        log_lines=0,
        facts={},
        user_restarts=0,
        node_recoveries=0,
        created_at=db_now(),
        updated_at=db_now(),
    )
    .returning(*COLUMNS)
)
_INSERT_DUE = insert_into(job_due).values(next_at=db_now(), wake=1, seen_wake=0, fence=0)
_GET = select(*COLUMNS).where(jobs.c.id == bindparam("job"))
_GET_LOCKED = _GET.with_for_update(key_share=True)
_TEXT = select(jobs.c.spec_text).where(jobs.c.id == bindparam("job"))
_CANCEL = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"), jobs.c.cancel_requested_at.is_(None))
    .values(cancel_requested_at=db_now(), updated_at=db_now(), revision=jobs.c.revision + 1)
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
    """Accept a job: its row, its due row (due now), the event `job.created` and a hint, all in this transaction.

    Args:
        spec_text: the document as the user wrote it.
        priority: 1 high, 2 normal, 3 low.
    """
    values = {
        "id": job_id,
        "project": project,
        "created_by": created_by,
        "spec": spec,
        "spec_text": spec_text,
        "name": name,
        "labels": labels,
        "priority": priority,
    }
    job = JobRow(*conn.execute(_INSERT_JOB, values).one())
    conn.execute(_INSERT_DUE, {"job_id": job_id, "urgency": priority})
    events.write_numbered(conn, job_id, 1, [("job.created", {"name": name, "created_by": created_by})])
    outbox.put(conn)
    return job


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


def page(  # noqa: PLR0913 - filters, by keyword
    conn: Connection,
    *,
    project: str,
    before: tuple[datetime, str] | None = None,
    limit: int = 50,
    states: Sequence[State] = (),
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> list[JobLine]:
    """Jobs of a project, newest first, that are older than the pair `(created_at, id)` of the last one seen.

    Args:
        labels: a job must carry all of them.
    """
    query = select(*LINE_COLUMNS).where(jobs.c.project == project)
    if before is not None:
        query = query.where(tuple_(jobs.c.created_at, jobs.c.id) < before)
    if states:
        query = query.where(jobs.c.state.in_(states))
    if name is not None:
        query = query.where(jobs.c.name == name)
    query = _with_labels(conn, query, labels or {})
    query = query.order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(limit)
    return all_of(JobLine, conn.execute(query))


def request_cancel(conn: Connection, job_id: str, *, by: str) -> JobRow:
    """Record the wish to end the job, once, and wake it. Repeating it changes nothing.

    Raises:
        NotFound: there is no such job.
        Conflict: `job_ended`: its outcome is fixed, and it is not `cancelled`.
    """
    due.wake(conn, [job_id], urgency=0)
    job = get_locked(conn, job_id)
    if job is None:
        raise NotFound("job", job_id)
    if job.outcome in (State.SUCCEEDED, State.FAILED):
        raise Conflict("job_ended", f"the job has {job.outcome}")
    if job.cancel_requested_at is not None or job.outcome is not None:
        return job
    conn.execute(_CANCEL, {"job": job_id})
    events.append(conn, job_id, "job.cancel_requested", {"by": by})
    changed = get(conn, job_id)
    assert changed is not None
    return changed


def _with_labels(conn: Connection, query: Select[Any], labels: Mapping[str, str]) -> Select[Any]:
    if not labels:
        return query
    if conn.dialect.name == "postgresql":
        return query.where(jobs.c.labels.op("@>")(type_coerce(dict(labels), Json)))
    return query.where(
        and_(*(sql.json_extract(jobs.c.labels, _json_path(key)) == value for key, value in labels.items()))
    )


def _json_path(key: str) -> str:
    """SQLite's path of one key, whatever the key holds."""
    return '$."' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
