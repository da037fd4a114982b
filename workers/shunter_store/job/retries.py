"""A new job from one that ended: the same document, and the last checkpoint to go on from."""

from __future__ import annotations

from typing import Any, Literal

from shunter_schemas.job import JobSpec
from sqlalchemy import Connection, bindparam, update

from shunter_store.errors import Conflict, NotFound
from shunter_store.job import events, jobs
from shunter_store.job.jobs import COLUMNS, JobRow
from shunter_store.job.lifecycle import is_terminal
from shunter_store.report import checkpoints
from shunter_store.tables import jobs as jobs_table

Start = Literal["checkpoint", "start"]

_TAKE_UP = update(jobs_table).where(jobs_table.c.id == bindparam("job")).returning(*COLUMNS)


def retry(conn: Connection, job_id: str, document: JobSpec, *, new_id: str, by: str, start: Start | None) -> JobRow:
    """Accept `document` as the job `new_id` that takes up the job `job_id`.

    The checkpoint is the new job's own from then on: whatever becomes of the old one, its bytes stay. With it goes the
    commit of the source, since weights and program belong together.

    Args:
        start: None: from the last checkpoint if there is one.

    Raises:
        NotFound: there is no such job.
        Conflict: `job_not_ended`; `no_checkpoint`: it was asked for and there is none.
    """
    old = jobs.get_locked(conn, job_id)
    if old is None:
        raise NotFound("job", job_id)
    if not is_terminal(old.state):
        raise Conflict("job_not_ended", f"the job is {old.state}: it can be taken up once it has ended")
    checkpoint = None if start == "start" else checkpoints.latest_for_good(conn, job_id)
    if start == "checkpoint" and checkpoint is None:
        raise Conflict("no_checkpoint", "the job has no committed checkpoint; retry it from the start")
    jobs.insert(
        conn,
        job_id=new_id,
        project=old.project,
        created_by=by,
        spec=document.model_dump(mode="json"),
        spec_text=jobs.document_text(conn, job_id) or "",
        name=document.name,
        labels=document.labels,
        priority=jobs.URGENCIES[document.priority],
    )
    values: dict[str, Any] = {"retry_of": job_id}
    told: dict[str, Any] = {"job": job_id}
    if checkpoint is not None:
        checkpoints.borrow(conn, checkpoint, new_id)
        values |= {"resumes_from_step": checkpoint.step, **_same_source(old)}
        told |= {"generation": checkpoint.generation, "step": checkpoint.step}
    row = JobRow(*conn.execute(_TAKE_UP.values(values), {"job": new_id}).one())
    events.append(conn, new_id, "job.retry_of", told)
    again = jobs.get(conn, row.id)
    assert again is not None
    return again


def _same_source(old: JobRow) -> dict[str, Any]:
    commit = old.facts.get("source_commit")
    return {} if commit is None else {"source_commit": commit, "facts": {"source_commit": commit}}
