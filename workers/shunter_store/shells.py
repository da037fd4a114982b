"""Wishes to open a shell on a node: the service writes one, the worker that reaches the node answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shunter_schemas.ids import new_id
from shunter_schemas.states import NodeState
from sqlalchemy import Connection, bindparam, insert, select, update

from shunter_store.rows import all_of, columns_of
from shunter_store.sqltypes import Json, db_now, seconds
from shunter_store.tables import nodes, shells

UNANSWERED_FOR_S: Final = 60.0
"""A wish that nobody answered for so long is void."""


@dataclass(frozen=True, slots=True)
class ShellRow:
    """One wish, and what came of it."""

    id: str
    node_id: str
    public_key: str
    requested_by: str
    requested_at: datetime
    expires_at: datetime
    answered_at: datetime | None
    endpoint: dict[str, Any] | None
    """`host`, `port`, `user`, `host_keys`, `folder`, `via`: all that a client needs beside its own key."""
    error: str | None


_INSERT = insert(shells).values(requested_at=db_now(), expires_at=db_now() + seconds("for_s"))
_GET = select(*columns_of(ShellRow, shells)).where(shells.c.id == bindparam("shell"))
_OPEN = (
    select(*columns_of(ShellRow, shells))
    .join(nodes, nodes.c.id == shells.c.node_id)
    .where(
        shells.c.answered_at.is_(None),
        shells.c.requested_at > db_now() - UNANSWERED_FOR_S,
        nodes.c.state != NodeState.GONE,
    )
    .order_by(shells.c.requested_at)
)
_ANSWER = (
    update(shells)
    .where(shells.c.id == bindparam("shell"), shells.c.answered_at.is_(None))
    .values(answered_at=db_now(), endpoint=bindparam("told", type_=Json), error=bindparam("why"))
)


def ask(conn: Connection, node_id: str, public_key: str, *, by: str, for_s: float) -> str:
    """Wish that this key may log in on the node for a time; returns the wish's id."""
    shell_id = new_id("shl")
    values = {"id": shell_id, "node_id": node_id, "public_key": public_key, "requested_by": by, "for_s": for_s}
    conn.execute(_INSERT, values)
    return shell_id


def get(conn: Connection, shell_id: str) -> ShellRow | None:
    """The wish, or None."""
    row = conn.execute(_GET, {"shell": shell_id}).one_or_none()
    return None if row is None else ShellRow(*row)


def unanswered(conn: Connection) -> list[ShellRow]:
    """Wishes that wait, oldest first."""
    return all_of(ShellRow, conn.execute(_OPEN))


def answer(
    conn: Connection, shell_id: str, *, endpoint: Mapping[str, Any] | None = None, error: str | None = None
) -> None:
    """Grant a wish with an endpoint, or refuse it with an error."""
    conn.execute(_ANSWER, {"shell": shell_id, "told": None if endpoint is None else dict(endpoint), "why": error})
