"""The end of a job's record. Rows of the ledger stay: money that was spent is never forgotten."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, insert, select
from sqlalchemy import delete as delete_from

from shunter_store.accounts import money
from shunter_store.errors import Conflict, NotFound
from shunter_store.job import jobs
from shunter_store.job.lifecycle import is_terminal
from shunter_store.report import checkpoints
from shunter_store.sql.sqltypes import db_now, seconds
from shunter_store.storage import garbage
from shunter_store.tables import deleted_jobs
from shunter_store.tables import jobs as jobs_table

TOLD_FOR_S: Final = 7 * 86400.0
"""Who follows all jobs and was away for longer is not told which were deleted meanwhile."""

_DELETE: Final = delete_from(jobs_table).where(jobs_table.c.id == bindparam("job"))
_TELL: Final = insert(deleted_jobs).values(deleted_at=db_now())
_OLD: Final = (
    select(deleted_jobs.c.id)
    .where(deleted_jobs.c.deleted_at < db_now() - seconds("older_than_s"))
    .order_by(deleted_jobs.c.deleted_at)
    .limit(bindparam("limit"))
)
_EXPIRE: Final = delete_from(deleted_jobs).where(deleted_jobs.c.id.in_(_OLD))


def delete(conn: Connection, job_id: str) -> None:
    """Forget a job that ended: its record, events, metrics, logs, artifacts and checkpoints.

    A checkpoint that a retry goes on from stays for that. The bytes of the rest go soon after.

    Raises:
        NotFound: there is no such job.
        Conflict: `job_not_ended`.
    """
    job = jobs.get_locked(conn, job_id)
    if job is None:
        raise NotFound("job", job_id)
    if not is_terminal(job.state):
        raise Conflict("job_not_ended", f"the job is {job.state}: only the record of one that ended can be deleted")
    money.keep_payer(conn, job)
    kept = checkpoints.let_go(conn, job_id)
    garbage.put(conn, below=f"{job_id}/", kept=kept)
    conn.execute(_DELETE, {"job": job_id})
    conn.execute(_TELL, {"id": job_id, "project": job.project})


def expire(conn: Connection, limit: int, older_than_s: float = TOLD_FOR_S) -> int:
    """Forget which records were deleted long ago, so many at once; returns how many."""
    return conn.execute(_EXPIRE, {"older_than_s": older_than_s, "limit": limit}).rowcount
