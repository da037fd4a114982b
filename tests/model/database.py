"""The real store, with gates between its transactions and a crash before any statement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from shunter_store.sql.database import Database
from shunter_store.sql.engines import open_engines
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import job_due, outbox
from sqlalchemy import Connection, event, func, select

from model.clock import Clock
from model.processes import gate, pass_point
from model.verdicts import require

T = TypeVar("T")

_FREE_AND_DUE = select(job_due.c.job_id).where(job_due.c.next_at <= db_now(), job_due.c.lease_owner.is_(None))
_NEWEST_HINT = select(func.coalesce(func.max(outbox.c.id), 0))


class ModelDatabase(Database):
    """Runs everything in the caller's thread: what happens between two transactions is the model's choice."""

    def __init__(self, file: Path, clock: Clock) -> None:
        writer, reader, _ = open_engines(f"sqlite:///{file}", readers=1)
        for engine in (writer, reader):
            clock.rule(engine)
            event.listen(engine, "before_cursor_execute", _before_statement)
        event.listen(writer, "commit", lambda conn: pass_point("before a commit"))
        super().__init__(writer, reader, threads=1)
        self.open_transactions = 0
        self.on_commit: list[Callable[[], None]] = []
        """What a transaction leaves to be done once it is durable; forgotten when it fails."""

    def write(self, fn: Callable[[Connection], T]) -> T:
        """As the store does it; and what became due has to leave a hint in the same transaction."""
        self.open_transactions += 1
        self.on_commit.clear()
        try:
            result = super().write(lambda conn: self._held_to_hints(conn, fn))
        finally:
            self.open_transactions -= 1
        for call in self.on_commit:
            call()
        return result

    def read(self, fn: Callable[[Connection], T]) -> T:
        """As the store does it."""
        self.open_transactions += 1
        try:
            return super().read(fn)
        finally:
            self.open_transactions -= 1

    async def aread(self, fn: Callable[[Connection], T]) -> T:
        """Gates before and after."""
        await gate("before a look")
        result = self.read(fn)
        await gate("after a look")
        return result

    async def awrite(self, fn: Callable[[Connection], T]) -> T:
        """Gates before and after."""
        await gate("before a transaction")
        result = self.write(fn)
        await gate("after a commit")
        return result

    def _held_to_hints(self, conn: Connection, fn: Callable[[Connection], T]) -> T:
        before, hints = _due(conn), _hints(conn)
        result = fn(conn)
        late = _due(conn) - before
        require(1, not late or _hints(conn) > hints, f"{sorted(late)} became due and no hint tells of it")
        return result


def _due(conn: Connection) -> set[str]:
    return set(conn.execute(_FREE_AND_DUE).scalars())


def _hints(conn: Connection) -> int:
    """Grows with every hint, also when older ones are deleted."""
    return int(conn.execute(_NEWEST_HINT).scalar_one())


def _before_statement(*execution: object) -> None:
    pass_point(f"before {str(execution[2])[:40]}")
