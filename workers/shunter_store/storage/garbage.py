"""Objects that nobody needs any more: rows are written with what made them so, a worker deletes the bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, insert, select
from sqlalchemy import delete as delete_from

from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import garbage


@dataclass(frozen=True, slots=True)
class GarbageRow:
    """What to delete: `keys`, and everything below the folder `below` except `kept`."""

    id: int
    keys: list[str]
    below: str | None
    kept: list[str]


_PUT = insert(garbage).values(created_at=db_now())
_TAKE = (
    select(*columns_of(GarbageRow, garbage))
    .where(garbage.c.id > bindparam("after"))
    .order_by(garbage.c.id)
    .limit(bindparam("limit"))
)
_FORGET = delete_from(garbage).where(garbage.c.id.in_(bindparam("ids", expanding=True)))


def put(conn: Connection, *, keys: Sequence[str] = (), below: str | None = None, kept: Collection[str] = ()) -> None:
    """Say that these objects may go; in the transaction after which nobody refers to them."""
    conn.execute(_PUT, {"keys": list(keys), "below": below, "kept": sorted(kept)})


def take(conn: Connection, limit: int, *, after: int = 0) -> list[GarbageRow]:
    """The oldest rows behind this one. They stay until `forget`: deleting twice does no harm."""
    return all_of(GarbageRow, conn.execute(_TAKE, {"limit": limit, "after": after}))


def forget(conn: Connection, row_ids: Sequence[int]) -> None:
    """The objects are gone."""
    if row_ids:
        conn.execute(_FORGET, {"ids": list(row_ids)})
