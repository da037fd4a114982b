"""The labels of jobs as rows, for lists by label; `jobs.labels` is what everybody reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, bindparam, delete, insert

from shunter_store.sql.bulk import BulkInsert
from shunter_store.tables import job_labels

if TYPE_CHECKING:
    from shunter_store.job.jobs import JobRow, NewJob

_INSERT = insert(job_labels)
INSERT_ALL: Final = BulkInsert(job_labels, ("job_id", "project", "key", "value", "created_at"))
_DELETE = delete(job_labels).where(job_labels.c.job_id == bindparam("job"))


def add(conn: Connection, job: JobRow) -> None:
    """Write the labels of a job that has no rows yet."""
    of_job = {"job_id": job.id, "project": job.project, "created_at": job.created_at}
    rows = [{**of_job, "key": key, "value": value} for key, value in job.labels.items()]
    if rows:
        conn.execute(_INSERT, rows)


def rows_of(new: Iterable[NewJob], at: float) -> list[dict[str, Any]]:
    """Rows for `INSERT_ALL`: the labels of jobs that are accepted at this moment."""
    return [
        {"job_id": job.id, "project": job.project, "key": key, "value": value, "created_at": at}
        for job in new
        for key, value in job.labels.items()
    ]


def replace(conn: Connection, job: JobRow) -> None:
    """Write the labels of a job that had others."""
    conn.execute(_DELETE, {"job": job.id})
    add(conn, job)
