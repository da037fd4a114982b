"""What an operator has to know of the whole installation: written with what it tells of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select

from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import notices


@dataclass(frozen=True, slots=True)
class Notice:
    """One event of the installation."""

    id: int
    at: datetime
    type: str
    data: dict[str, Any]


_PUT = insert(notices).values(at=db_now())
_NEWEST = select(*columns_of(Notice, notices)).order_by(notices.c.id.desc()).limit(bindparam("limit"))


def put(conn: Connection, type_: str, data: Mapping[str, Any]) -> None:
    """Tell it."""
    conn.execute(_PUT, {"type": type_, "data": dict(data)})


def newest(conn: Connection, limit: int = 100) -> list[Notice]:
    """Newest first."""
    return all_of(Notice, conn.execute(_NEWEST, {"limit": limit}))
