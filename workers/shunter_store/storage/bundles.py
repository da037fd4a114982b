"""Source archives that users uploaded, by their digest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, select

from shunter_store.sql.rows import columns_of
from shunter_store.sql.sqltypes import PerDialect, db_now
from shunter_store.tables import bundles


@dataclass(frozen=True, slots=True)
class BundleRow:
    """An archive whose object is stored whole."""

    digest: str
    size: int
    entries: int
    created_at: datetime


_PUT = PerDialect(lambda insert: insert(bundles).values(created_at=db_now()).on_conflict_do_nothing())
_GET = select(*columns_of(BundleRow, bundles)).where(bundles.c.digest == bindparam("of"))


def put(conn: Connection, digest: str, size: int, entries: int) -> None:
    """Know a bundle; its object must have been stored before. The same one again is fine."""
    conn.execute(_PUT.on(conn), {"digest": digest, "size": size, "entries": entries})


def get(conn: Connection, digest: str) -> BundleRow | None:
    """The bundle, or None."""
    row = conn.execute(_GET, {"of": digest}).one_or_none()
    return None if row is None else BundleRow(*row)


def object_key(digest: str) -> str:
    """Where the archive lies in the object store."""
    return f"bundles/{digest}"
