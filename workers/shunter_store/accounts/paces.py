"""The pace of calls to providers, shared by all processes: one number for each account and rate."""

from __future__ import annotations

from datetime import datetime

from shunter_providers.contract import Rate
from shunter_providers.pacing import held_off, reckon
from sqlalchemy import Connection, bindparam, select, update

from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import PerDialect, db_now, now_as_time, time_of
from shunter_store.tables import paces

_BEGIN = PerDialect(
    lambda insert: (
        insert(paces)
        .values(bucket=bindparam("bucket"), next_at=db_now())
        .on_conflict_do_nothing(index_elements=["bucket"])
    )
)
_READ = select(paces.c.next_at, now_as_time()).where(paces.c.bucket == bindparam("bucket")).with_for_update()
_KEEP = update(paces).where(paces.c.bucket == bindparam("of")).values(next_at=bindparam("at"))


class StorePacer:
    """The contract's `Pacer` over the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_turn(self, bucket: str, rate: Rate, at_most_s: float) -> float:
        """See the contract."""
        return await self._database.awrite(lambda conn: take_turn(conn, bucket, rate, at_most_s))

    async def hold_off(self, bucket: str, rate: Rate, for_s: float) -> None:
        """See the contract."""
        await self._database.awrite(lambda conn: hold_off(conn, bucket, rate, for_s))


def take_turn(conn: Connection, bucket: str, rate: Rate, at_most_s: float) -> float:
    """Reserve the next call; the seconds until it. More than `at_most_s`: nothing was reserved."""
    next_at, now = _read(conn, bucket)
    turn = reckon(next_at.timestamp(), now.timestamp(), rate, at_most_s)
    if turn.next_at is not None:
        conn.execute(_KEEP, {"of": bucket, "at": time_of(turn.next_at)})
    return turn.wait_s


def hold_off(conn: Connection, bucket: str, rate: Rate, for_s: float) -> None:
    """Nobody calls for so long."""
    next_at, now = _read(conn, bucket)
    conn.execute(_KEEP, {"of": bucket, "at": time_of(held_off(next_at.timestamp(), now.timestamp(), rate, for_s))})


def _read(conn: Connection, bucket: str) -> tuple[datetime, datetime]:
    """The kept time and the database's own; the row is held until the transaction ends."""
    conn.execute(_BEGIN.on(conn), {"bucket": bucket})
    next_at, now = conn.execute(_READ, {"bucket": bucket}).one()
    return next_at, now
