"""API keys: only the hash of a secret is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, bindparam, select

from shunter_store.sqltypes import PerDialect, db_now
from shunter_store.tables import api_keys

SCOPES: Final = frozenset({"jobs:read", "jobs:write", "admin"})


@dataclass(frozen=True, slots=True)
class ApiKey:
    """Who calls, and what they may do."""

    project: str
    name: str
    scopes: frozenset[str]
    created_at: datetime


_ADD = PerDialect(lambda insert: insert(api_keys).values(created_at=db_now()).on_conflict_do_nothing())
_FIND = select(api_keys.c.project, api_keys.c.name, api_keys.c.scopes, api_keys.c.created_at).where(
    api_keys.c.secret_hash == bindparam("hash")
)


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


def _hash(secret: str) -> str:
    # A plain digest suffices: the secrets are long and random, so there is nothing to guess.
    return hashlib.sha256(secret.encode()).hexdigest()
