"""What users ask of a job: to end, rest, go on, save, move, change. Kept as desired state; steps obey it.

In one transaction `due.wake` comes before the job's row is locked: the lock order is nodes, job_due, jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from shunter_schemas.api.requests import JobPatch
from shunter_schemas.changes import with_changes
from shunter_schemas.job import JobSpec
from shunter_schemas.states import State
from sqlalchemy import Connection, Update, bindparam, case, null, update

from shunter_store.errors import Conflict, NotFound, RevisionChanged
from shunter_store.job import due, events, jobs, labels
from shunter_store.job.job_lists import JobFilter, to_cancel
from shunter_store.job.jobs import COLUMNS, JobRow
from shunter_store.job.lifecycle import is_terminal
from shunter_store.sql.sqltypes import Json, db_now
from shunter_store.tables import job_due
from shunter_store.tables import jobs as jobs_table

MOST_AT_ONCE: Final = 500
"""Jobs that one bulk cancel asks to end: more would keep every other writer waiting."""

_OF_JOB = jobs_table.c.id == bindparam("job")


def _changing(**values: Any) -> Update:
    return update(jobs_table).values(updated_at=db_now(), revision=jobs_table.c.revision + 1, **values)


_CANCEL = _changing(cancel_requested_at=db_now()).where(_OF_JOB)
_CANCEL_MANY = (
    _changing(cancel_requested_at=db_now(), event_seq=jobs_table.c.event_seq + 1)
    .where(
        jobs_table.c.id.in_(bindparam("ids", expanding=True)),
        jobs_table.c.cancel_requested_at.is_(None),
        jobs_table.c.outcome.is_(None),
    )
    .returning(jobs_table.c.id, jobs_table.c.event_seq)
)
_PAUSE = _changing(pause_requested_at=db_now()).where(_OF_JOB)
_RESUME = _changing(
    pause_requested_at=null(),
    waiting=case((jobs_table.c.state == State.QUEUED, null()), else_=jobs_table.c.waiting),
).where(_OF_JOB)
"""In the queue it waited for this alone."""
_MOVE = _changing(move_wish=bindparam("parts", type_=Json), move_requested_at=db_now()).where(_OF_JOB)
_STAY = _changing(move_wish=null(), move_requested_at=null()).where(_OF_JOB)
_CHECKPOINT = (
    _changing(checkpoint_wish=jobs_table.c.checkpoint_wish + 1).where(_OF_JOB).returning(jobs_table.c.checkpoint_wish)
)
_PATCH = _changing().where(_OF_JOB).returning(*COLUMNS)
_TURN = (
    update(job_due)
    .where(job_due.c.job_id == bindparam("job"), job_due.c.urgency != 0)
    .values(urgency=bindparam("level"))
)


def request_cancel(conn: Connection, job_id: str, *, by: str) -> JobRow:
    """Record the wish to end the job, once, and wake it. Repeating it changes nothing.

    Raises:
        NotFound: there is no such job.
        Conflict: `job_ended`: its outcome is fixed, and it is not `cancelled`.
    """
    due.wake(conn, [job_id], urgency=0)
    job = _locked(conn, job_id)
    if job.outcome in (State.SUCCEEDED, State.FAILED):
        raise Conflict("job_ended", f"the job has {job.outcome}")
    if job.cancel_requested_at is not None or job.outcome is not None:
        return job
    conn.execute(_CANCEL, {"job": job_id})
    return _told(conn, job_id, "job.cancel_requested", {"by": by})


def cancel_many(
    conn: Connection, *, project: str, where: JobFilter, by: str, most: int = MOST_AT_ONCE
) -> tuple[list[str], bool]:
    """Ask all jobs of a project that fit to end, newest first; their ids, and whether there are more."""
    found = to_cancel(conn, project=project, where=where, limit=most + 1)
    chosen = found[:most]
    due.wake(conn, chosen, urgency=0)
    rows = conn.execute(_CANCEL_MANY, {"ids": chosen}).all() if chosen else []
    events.write_each(conn, [(row.id, row.event_seq) for row in rows], "job.cancel_requested", {"by": by})
    asked = {row.id for row in rows}
    return [job_id for job_id in chosen if job_id in asked], len(found) > most


def request_pause(conn: Connection, job_id: str, *, by: str) -> JobRow:
    """Record the wish that the job rests, and wake it. Repeating it changes nothing.

    Raises:
        NotFound: there is no such job.
        Conflict: `job_ended`, or `job_stopping`: it is on its way to the end.
    """
    due.wake(conn, [job_id])
    job = _locked(conn, job_id)
    _refuse_ending(job)
    if job.pause_requested_at is not None:
        return job
    conn.execute(_PAUSE, {"job": job_id})
    return _told(conn, job_id, "job.pause_requested", {"by": by})


def request_resume(conn: Connection, job_id: str, *, by: str) -> JobRow:
    """Take the wish back, and wake the job.

    Raises:
        NotFound: there is no such job.
        Conflict: `not_paused`, `job_ended` or `job_stopping`.
    """
    due.wake(conn, [job_id])
    job = _locked(conn, job_id)
    _refuse_ending(job)
    if job.pause_requested_at is None:
        raise Conflict("not_paused", "the job is not paused")
    conn.execute(_RESUME, {"job": job_id})
    return _told(conn, job_id, "job.resume_requested", {"by": by})


def request_checkpoint(conn: Connection, job_id: str, *, by: str) -> JobRow:
    """Ask the running ranks for a checkpoint now; their nodes hear of it in their next exchange.

    Raises:
        NotFound: there is no such job.
        Conflict: `not_running`, `job_ended` or `job_stopping`.
    """
    job = _locked(conn, job_id)
    _refuse_ending(job)
    if job.state is not State.RUNNING or job.pause_requested_at is not None:
        raise Conflict("not_running", f"the job is {_standing(job)}: only ranks that run can write a checkpoint")
    wish = conn.execute(_CHECKPOINT, {"job": job_id}).scalar_one()
    return _told(conn, job_id, "job.checkpoint_requested", {"by": by, "wish": wish})


def request_move(
    conn: Connection,
    job_id: str,
    resolve: Callable[[JobRow], Mapping[str, Any]],
    *,
    by: str,
    revisions: Collection[int] | None = None,
) -> JobRow:
    """Record that the job shall go on under a changed document, and wake it. A later wish joins an earlier one.

    Args:
        resolve: the parts of the document that change, whole, by the job as it is now; may refuse.
        revisions: those that the user would have it move from; None: whatever it is.

    Raises:
        NotFound: there is no such job.
        RevisionChanged: the job has another revision.
        Conflict: `job_ended` or `job_stopping`.
    """
    due.wake(conn, [job_id])
    job = _locked(conn, job_id)
    if revisions is not None and job.revision not in revisions:
        raise RevisionChanged(job_id, job.revision)
    _refuse_ending(job)
    parts = dict(resolve(job)) or None
    if job.move_wish == parts:
        return job
    if parts is None:  # back to what it is before anything came of the wish
        conn.execute(_STAY, {"job": job_id})
        return _told(conn, job_id, "job.move_withdrawn", {"by": by})
    conn.execute(_MOVE, {"job": job_id, "parts": parts})
    return _told(conn, job_id, "job.move_requested", {"by": by, **parts})


def patch(conn: Connection, job_id: str, wanted: JobPatch, *, by: str, revisions: Collection[int] | None) -> JobRow:
    """Change labels, priority and limits. Steps see new limits at once; a new priority gives the job another turn.

    Args:
        revisions: those that the user would have it change from; None: whatever it is.

    Raises:
        NotFound: there is no such job.
        RevisionChanged: the job has another revision.
        Conflict: `job_ended` or `job_stopping`: priority and limits mean nothing any more. Labels may always change.
        DocumentError: the document would not be valid with these changes.
    """
    moves = bool(wanted.priority or wanted.limits.model_fields_set)
    if moves:
        due.wake(conn, [job_id])
    job = _locked(conn, job_id)
    if revisions is not None and job.revision not in revisions:
        raise RevisionChanged(job_id, job.revision)
    if moves:
        _refuse_ending(job)
    document = with_changes(job.spec, wanted)
    spec = document.model_dump(mode="json")
    if spec == job.spec:
        return job
    return _changed(conn, job, wanted, document, spec, by=by)


def _changed(
    conn: Connection, job: JobRow, wanted: JobPatch, document: JobSpec, spec: dict[str, Any], *, by: str
) -> JobRow:
    urgency = jobs.URGENCIES[document.priority]
    if urgency != job.priority:
        conn.execute(_TURN, {"job": job.id, "level": urgency})
    values = {"spec": spec, "labels": document.labels, "priority": urgency}
    row = JobRow(*conn.execute(_PATCH.values(values), {"job": job.id}).one())
    if document.labels != job.labels:
        labels.replace(conn, row)
    if is_terminal(job.state):
        return row  # the last event of a job is that of its end
    told = wanted.model_dump(mode="json", exclude_unset=True)
    return _told(conn, job.id, "job.changed", {"by": by, **told})


def _locked(conn: Connection, job_id: str) -> JobRow:
    job = jobs.get_locked(conn, job_id)
    if job is None:
        raise NotFound("job", job_id)
    return job


def _told(conn: Connection, job_id: str, type_: str, data: dict[str, Any]) -> JobRow:
    events.append(conn, job_id, type_, data)
    job = jobs.get(conn, job_id)
    assert job is not None
    return job


def _refuse_ending(job: JobRow) -> None:
    if job.outcome is not None:
        raise Conflict("job_ended", f"the job has {job.outcome}")
    if job.state is State.STOPPING or job.cancel_requested_at is not None:
        raise Conflict("job_stopping", "the job was asked to end")


def _standing(job: JobRow) -> str:
    return "being paused" if job.pause_requested_at is not None else str(job.state)
