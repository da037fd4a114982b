"""Jobs that somebody looks at: their nodes report more often while it lasts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, bindparam, select

from shunter_store.sqltypes import PerDialect, db_now, seconds
from shunter_store.tables import watches


def _upsert(insert: Any) -> Any:
    statement = insert(watches).values(job_id=bindparam("job"), until=db_now() + seconds("for_s"))
    return statement.on_conflict_do_update(index_elements=["job_id"], set_={"until": db_now() + seconds("for_s")})


_TOUCH = PerDialect(_upsert)
_IS_WATCHED = select(watches.c.until >= db_now()).where(watches.c.job_id == bindparam("job"))


def touch(conn: Connection, job_id: str, for_s: float = 30.0) -> None:
    """Count the job as watched for so long from now. Call it at most every few seconds per watcher."""
    conn.execute(_TOUCH.on(conn), {"job": job_id, "for_s": for_s})


def is_watched(conn: Connection, job_id: str) -> bool:
    """Whether somebody looked at the job of late."""
    return bool(conn.execute(_IS_WATCHED, {"job": job_id}).scalar())
