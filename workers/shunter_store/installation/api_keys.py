"""API keys: only the hash of a secret is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, bindparam, delete, select

from shunter_store.sql.sqltypes import PerDialect, db_now
from shunter_store.tables import api_keys

SCOPES: Final = frozenset({"jobs:read", "jobs:write", "admin"})


@dataclass(frozen=True, slots=True)
class ApiKey:
    """Who calls, and what they may do."""

    project: str
    name: str
    scopes: frozenset[str]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ListedKey:
    """A key as an operator sees it. `id` is the beginning of its hash: it names the key and gives nothing away."""

    id: str
    name: str
    project: str
    scopes: tuple[str, ...]
    created_at: datetime


_ID_LETTERS: Final = 12

_ADD = PerDialect(lambda insert: insert(api_keys).values(created_at=db_now()).on_conflict_do_nothing())
_FIND = select(api_keys.c.project, api_keys.c.name, api_keys.c.scopes, api_keys.c.created_at).where(
    api_keys.c.secret_hash == bindparam("hash")
)

_LIST = select(
    api_keys.c.secret_hash, api_keys.c.name, api_keys.c.project, api_keys.c.scopes, api_keys.c.created_at
).order_by(api_keys.c.created_at, api_keys.c.secret_hash)
_REVOKE = delete(api_keys).where(api_keys.c.secret_hash.like(bindparam("beginning")))


def add(conn: Connection, secret: str, name: str, scopes: Iterable[str], project: str = "default") -> None:
    """Accept a key from now on. A secret that is known already keeps what it has.

    Raises:
        ValueError: a scope that does not exist.
    """
    wanted = sorted(set(scopes))
    if unknown := set(wanted) - SCOPES:
        raise ValueError(f"no such scopes: {sorted(unknown)}")
    row = {"secret_hash": _hash(secret), "name": name, "scopes": wanted, "project": project}
    conn.execute(_ADD.on(conn), row)


def find(conn: Connection, secret: str) -> ApiKey | None:
    """The key with this secret, or None."""
    row = conn.execute(_FIND, {"hash": _hash(secret)}).one_or_none()
    return None if row is None else ApiKey(row.project, row.name, frozenset(row.scopes), row.created_at)


def list_all(conn: Connection) -> list[ListedKey]:
    """Every key that is let in, oldest first."""
    rows = conn.execute(_LIST)
    return [
        ListedKey(row.secret_hash[:_ID_LETTERS], row.name, row.project, tuple(sorted(row.scopes)), row.created_at)
        for row in rows
    ]


def revoke(conn: Connection, key_id: str) -> bool:
    """Let a key in no more; False when there is none with this id. API processes forget it within their cache's time.

    Raises:
        ValueError: this cannot be an id.
    """
    if len(key_id) != _ID_LETTERS or not set(key_id) <= set("0123456789abcdef"):
        raise ValueError(f"no id of a key: {key_id!r}")
    return conn.execute(_REVOKE, {"beginning": f"{key_id}%"}).rowcount > 0


def id_of(secret: str) -> str:
    """The id of the key with this secret."""
    return _hash(secret)[:_ID_LETTERS]


def _hash(secret: str) -> str:
    # A plain digest suffices: the secrets are long and random, so there is nothing to guess.
    return hashlib.sha256(secret.encode()).hexdigest()
