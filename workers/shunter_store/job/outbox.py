"""What still has to be told to the broker. A row is written in the transaction of the change that it speaks of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, bindparam, insert, select
from sqlalchemy import delete as delete_from

from shunter_store.sql.bulk import BulkInsert
from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import outbox

DUE: Final = "due"
"""The topic of hints that some job is due. A hint carries no id."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One hint to send."""

    id: int
    topic: str
    created_at: datetime


_PUT = insert(outbox).values(topic=bindparam("topic"), created_at=db_now())
PUT_MANY: Final = BulkInsert(outbox, ("created_at",), topic=DUE)
"""Hints that some job is due."""
_TAKE = select(*columns_of(OutboxRow, outbox)).order_by(outbox.c.id).limit(bindparam("limit"))
_DELETE = delete_from(outbox).where(outbox.c.id.in_(bindparam("ids", expanding=True)))


def put(conn: Connection, topic: str = DUE) -> None:
    """Leave a hint."""
    conn.execute(_PUT, {"topic": topic})


def take(conn: Connection, limit: int) -> list[OutboxRow]:
    """The oldest hints. They stay until `delete`: sending twice does no harm, losing one costs latency only."""
    return all_of(OutboxRow, conn.execute(_TAKE, {"limit": limit}))


def delete(conn: Connection, ids: Sequence[int]) -> None:
    """Forget hints that were sent."""
    if ids:
        conn.execute(_DELETE, {"ids": list(ids)})
