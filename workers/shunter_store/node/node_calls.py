"""What the service asks of a node through the connection that a worker holds: a row is the call, then its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shunter_schemas.ids import new_id
from shunter_schemas.states import NodeState
from sqlalchemy import Connection, bindparam, delete, insert, select, update

from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import Json, db_now
from shunter_store.tables import node_calls, nodes

UNANSWERED_FOR_S: Final = 60.0
"""A call that nobody answered for so long is void."""
KEPT_FOR_S: Final = 86_400.0

SHELL: Final = "shell"
"""`argument`: `public_key`, `expires_at`. `answer`: `host`, `port`, `user`, `host_keys`, `via`, `folder`."""
PEEK: Final = "peek"
"""`answer`: the ends of the agent's own files, as they lie on the node."""


@dataclass(frozen=True, slots=True)
class NodeCallRow:
    """One call."""

    id: str
    node_id: str
    kind: str
    argument: dict[str, Any]
    asked_by: str
    asked_at: datetime
    answered_at: datetime | None
    answer: dict[str, Any] | None
    error: str | None


_INSERT = insert(node_calls).values(asked_at=db_now())
_GET = select(*columns_of(NodeCallRow, node_calls)).where(node_calls.c.id == bindparam("call"))
_OPEN = (
    select(*columns_of(NodeCallRow, node_calls))
    .join(nodes, nodes.c.id == node_calls.c.node_id)
    .where(
        node_calls.c.answered_at.is_(None),
        node_calls.c.asked_at > db_now() - UNANSWERED_FOR_S,
        nodes.c.state != NodeState.GONE,
    )
    .order_by(node_calls.c.asked_at)
)
_ANSWER = (
    update(node_calls)
    .where(node_calls.c.id == bindparam("call"), node_calls.c.answered_at.is_(None))
    .values(answered_at=db_now(), answer=bindparam("told", type_=Json), error=bindparam("why"))
)
_FORGET = delete(node_calls).where(node_calls.c.asked_at < db_now() - KEPT_FOR_S)


def ask(conn: Connection, node_id: str, kind: str, argument: Mapping[str, Any], *, by: str) -> str:
    """Call a node; returns the call's id."""
    call_id = new_id("ncl")
    values = {"id": call_id, "node_id": node_id, "kind": kind, "argument": dict(argument), "asked_by": by}
    conn.execute(_FORGET)
    conn.execute(_INSERT, values)
    return call_id


def get(conn: Connection, call_id: str) -> NodeCallRow | None:
    """The call, or None."""
    row = conn.execute(_GET, {"call": call_id}).one_or_none()
    return None if row is None else NodeCallRow(*row)


def unanswered(conn: Connection) -> list[NodeCallRow]:
    """Calls that wait, oldest first."""
    return all_of(NodeCallRow, conn.execute(_OPEN))


def give(conn: Connection, call_id: str, *, answer: Mapping[str, Any] | None = None, error: str | None = None) -> None:
    """Answer a call, or say why it cannot be answered."""
    conn.execute(_ANSWER, {"call": call_id, "told": None if answer is None else dict(answer), "why": error})
