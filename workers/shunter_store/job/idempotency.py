"""Answers kept by Idempotency-Key, so that a request that is sent again does nothing twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, select, tuple_

from shunter_store.errors import IdempotencyMismatch, KeyTaken
from shunter_store.sql.bulk import BulkInsert
from shunter_store.sql.rows import columns_of
from shunter_store.sql.sqltypes import PerDialect, db_now, seconds
from shunter_store.tables import idempotency


@dataclass(frozen=True, slots=True)
class Stored:
    """The answer that the first request got."""

    body_hash: str
    status: int
    headers: dict[str, str]
    body: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer to keep."""

    project: str
    path: str
    key: str
    body_hash: str
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def place(self) -> tuple[str, str, str]:
        """What it is found by."""
        return self.project, self.path, self.key


_FIND = select(*columns_of(Stored, idempotency)).where(
    idempotency.c.project == bindparam("of_project"),
    idempotency.c.path == bindparam("at_path"),
    idempotency.c.key == bindparam("by_key"),
)
_STORE = PerDialect(
    lambda insert: (
        insert(idempotency).values(created_at=db_now()).on_conflict_do_nothing().returning(idempotency.c.status)
    )
)
_KEY: Final = ("project", "path", "key")
_FIELDS: Final = tuple(field.name for field in fields(Kept))
_STORE_ALL = BulkInsert(idempotency, (*_FIELDS, "created_at"), returning=_KEY)
_PLACE = (idempotency.c.project, idempotency.c.path, idempotency.c.key)
_OLD = (
    select(*_PLACE)
    .where(idempotency.c.created_at < db_now() - seconds("older_than_s"))
    .order_by(idempotency.c.created_at)
    .limit(bindparam("limit"))
)
_EXPIRE = delete(idempotency).where(tuple_(*_PLACE).in_(_OLD))


def find(conn: Connection, project: str, path: str, key: str) -> Stored | None:
    """The answer kept under the key, or None."""
    row = conn.execute(_FIND, {"of_project": project, "at_path": path, "by_key": key}).one_or_none()
    return None if row is None else Stored(*row)


def replay(conn: Connection, project: str, path: str, key: str, body_hash: str) -> Stored | None:
    """`find`, for a request with this body.

    Raises:
        IdempotencyMismatch: the key was used for another body.
    """
    stored = find(conn, project, path, key)
    if stored is not None and stored.body_hash != body_hash:
        raise IdempotencyMismatch(key)
    return stored


def store(  # noqa: PLR0913 - the columns of a row
    conn: Connection,
    *,
    project: str,
    path: str,
    key: str,
    body_hash: str,
    status: int,
    body: str,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Keep the answer, in the transaction of what it answers for.

    Raises:
        KeyTaken: another request with this key came first: let the transaction roll back, then `replay`.
    """
    row = {
        "project": project,
        "path": path,
        "key": key,
        "body_hash": body_hash,
        "status": status,
        "body": body,
        "headers": headers or {},
    }
    if conn.execute(_STORE.on(conn), row).scalar() is None:
        raise KeyTaken(key)


def store_all(conn: Connection, answers: Iterable[Kept], at: float) -> list[bool]:
    """Keep answers, each in the transaction of what it answers for; whether it was the first under its key, of each.

    Of several with one key in one call the first one is kept.
    """
    given = list(answers)
    # In one order everywhere: two transactions that wait for each other's keys would be a deadlock.
    rows: list[dict[str, Any]] = [
        {name: getattr(one, name) for name in _FIELDS} | {"created_at": at}
        for one in sorted(given, key=lambda one: one.place)
    ]
    first = {(row.project, row.path, row.key) for row in _STORE_ALL.run(conn, rows)} if rows else set()
    kept = []
    for one in given:
        kept.append(one.place in first)
        first.discard(one.place)
    return kept


def expire(conn: Connection, limit: int, older_than_s: float = 7 * 86400.0) -> int:
    """Forget old answers, so many at once; returns how many. At least a day must pass (86,400 s)."""
    return conn.execute(_EXPIRE, {"older_than_s": max(older_than_s, 86400.0), "limit": limit}).rowcount
