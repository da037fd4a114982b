"""The outputs of a job: which files there are, and where their bytes lie."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select

from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import PerDialect, db_now
from shunter_store.tables import artifacts


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    """One output file."""

    job_id: str
    path: str
    generation: int
    size: int
    sha256: str
    object: str
    created_at: datetime


def _upsert(insert: Any) -> Any:
    statement = insert(artifacts).values(created_at=db_now())
    fresh = {name: statement.excluded[name] for name in ("generation", "size", "sha256", "object", "created_at")}
    return statement.on_conflict_do_update(
        index_elements=["job_id", "path"], set_=fresh, where=artifacts.c.generation <= statement.excluded.generation
    )


_PUT = PerDialect(_upsert)
_PAGE = (
    select(*columns_of(ArtifactRow, artifacts))
    .where(artifacts.c.job_id == bindparam("job"), artifacts.c.path > bindparam("after"))
    .order_by(artifacts.c.path)
    .limit(bindparam("limit"))
)
_GET = select(*columns_of(ArtifactRow, artifacts)).where(
    artifacts.c.job_id == bindparam("job"), artifacts.c.path == bindparam("at")
)


def put(  # noqa: PLR0913 - the columns of a row
    conn: Connection, job_id: str, path: str, *, generation: int, size: int, sha256: str, object: str
) -> None:
    """Know an output; that of a newer generation takes the place of an older one's."""
    row = {"job_id": job_id, "path": path, "generation": generation, "size": size, "sha256": sha256, "object": object}
    conn.execute(_PUT.on(conn), row)


def page(conn: Connection, job_id: str, *, after: str = "", limit: int = 1000) -> list[ArtifactRow]:
    """Outputs whose path comes after `after`, by path."""
    return all_of(ArtifactRow, conn.execute(_PAGE, {"job": job_id, "after": after, "limit": limit}))


def get(conn: Connection, job_id: str, path: str) -> ArtifactRow | None:
    """One output, or None."""
    row = conn.execute(_GET, {"job": job_id, "at": path}).one_or_none()
    return None if row is None else ArtifactRow(*row)
