"""Jobs: accept and read one. See `job_lists` for many, `wishes` for what users ask of one, `steps` for its moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shunter_schemas.states import Health, Reason, State
from sqlalchemy import Connection, bindparam, select
from sqlalchemy import insert as insert_into

from shunter_store import events, outbox
from shunter_store import labels as job_labels
from shunter_store.rows import columns_of
from shunter_store.sqltypes import db_now
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


COLUMNS: Final = columns_of(JobRow, jobs)
URGENCIES: Final[Mapping[str, int]] = {"high": 1, "normal": 2, "low": 3}
"""Priorities of documents as numbers: the lower one goes first."""

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
    if labels:
        job_labels.add(conn, job)
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
