"""Jobs that somebody looks at: their nodes report more often while it lasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select

from shunter_store.sql.bulk import ByKeys
from shunter_store.sql.sqltypes import PerDialect, db_now, seconds
from shunter_store.tables import job_due, watches


def _upsert(insert: Any) -> Any:
    statement = insert(watches).values(job_id=bindparam("job"), until=db_now() + seconds("for_s"))
    return statement.on_conflict_do_update(index_elements=["job_id"], set_={"until": db_now() + seconds("for_s")})


_TOUCH = PerDialect(_upsert)
_LIVING = ByKeys(lambda asked: select(job_due.c.job_id).where(asked(job_due.c.job_id)))
_IS_WATCHED = select(watches.c.until >= db_now()).where(watches.c.job_id == bindparam("job"))


def touch(conn: Connection, job_ids: Sequence[str], for_s: float = 30.0) -> None:
    """Count these jobs as watched for so long from now. Call it at most every few seconds per watcher."""
    conn.execute(_TOUCH.on(conn), [{"job": job_id, "for_s": for_s} for job_id in job_ids])


def living(conn: Connection, job_ids: Sequence[str]) -> list[str]:
    """Those of the jobs that have not ended: only their nodes can report."""
    return sorted(row.job_id for row in _LIVING.run(conn, job_ids))


def is_watched(conn: Connection, job_id: str) -> bool:
    """Whether somebody looked at the job of late."""
    return bool(conn.execute(_IS_WATCHED, {"job": job_id}).scalar())
