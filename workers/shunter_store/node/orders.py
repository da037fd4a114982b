"""Of which nodes something else is wanted than a moment ago: what those who hold answers to agents back look at."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, select

from shunter_store.sql.sqltypes import db_now, seconds
from shunter_store.tables import nodes

SAME_S: Final = 0.0005
"""Two readings of one moment differ by less, and two decisions about one node by more."""

_CHANGED = select(nodes.c.token, nodes.c.desired_at).where(nodes.c.desired_at >= db_now() - seconds("within_s"))


def changed_lately(conn: Connection, within_s: float) -> list[tuple[str, float]]:
    """Tokens of the nodes of which something was decided within so many seconds, each with the moment of the last
    decision (`node_sync.Desired.since`)."""
    found = conn.execute(_CHANGED, {"within_s": within_s})
    return [(row.token, row.desired_at.timestamp()) for row in found]


def is_same(since: float, at: float) -> bool:
    """Whether these are readings of one decision's moment."""
    return abs(since - at) < SAME_S
