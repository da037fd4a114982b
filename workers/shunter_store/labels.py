"""The labels of jobs as rows, for lists by label; `jobs.labels` is what everybody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, bindparam, delete, insert

from shunter_store.tables import job_labels

if TYPE_CHECKING:
    from shunter_store.jobs import JobRow

_INSERT = insert(job_labels)
_DELETE = delete(job_labels).where(job_labels.c.job_id == bindparam("job"))


def add(conn: Connection, job: JobRow) -> None:
    """Write the labels of a job that has no rows yet."""
    of_job = {"job_id": job.id, "project": job.project, "created_at": job.created_at}
    rows = [{**of_job, "key": key, "value": value} for key, value in job.labels.items()]
    if rows:
        conn.execute(_INSERT, rows)


def replace(conn: Connection, job: JobRow) -> None:
    """Write the labels of a job that had others."""
    conn.execute(_DELETE, {"job": job.id})
    add(conn, job)
