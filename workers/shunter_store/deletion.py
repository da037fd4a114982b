"""The end of a job's record. Rows of the ledger stay: money that was spent is never forgotten."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam
from sqlalchemy import delete as delete_from

from shunter_store import checkpoints, garbage, jobs, money
from shunter_store.errors import Conflict, NotFound
from shunter_store.lifecycle import is_terminal
from shunter_store.tables import jobs as jobs_table

_DELETE: Final = delete_from(jobs_table).where(jobs_table.c.id == bindparam("job"))


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
