"""One database per process: short transactions, one writer at a time on SQLite, bounded retries on PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from shunter_store.sql.engines import open_engines

T = TypeVar("T")

ATTEMPTS: Final = 5
"""How often a transaction is tried that the database itself gave up (deadlock, serialization), or whose pooled
connection turned out to be dead (the server was restarted)."""

_LOST_RACE: Final = frozenset({"40001", "40P01", "55P03"})
"""SQLSTATEs of serialization failure, deadlock, lock not available: the transaction did nothing and may be repeated."""


class Database:
    """The only door to SQL. Make it after a fork; it refuses to serve another process.

    A function given to `read` or `write` may run again when the database gave the transaction up: it must do nothing
    but SQL.
    """

    def __init__(self, writer: Engine, reader: Engine, *, threads: int) -> None:
        sqlite = writer.dialect.name == "sqlite"
        self._writer = writer
        self._reader = reader
        self._pid = os.getpid()
        self.statements = 0
        """Sent so far; an `executemany` counts as one. Threads may lose a count now and then, which no rate shows."""
        self.transactions = 0
        for engine in (writer, reader):
            event.listen(engine, "before_cursor_execute", self._count_statement)
        self._thread = threading.local()
        self._turn: AbstractContextManager[Any] = threading.Lock() if sqlite else nullcontext()
        self._readers = ThreadPoolExecutor(threads, thread_name_prefix="store-read")
        self._writers = ThreadPoolExecutor(1 if sqlite else threads, thread_name_prefix="store-write")

    @classmethod
    def connect(cls, url: str, *, readers: int = 4) -> Database:
        """Open `sqlite:///PATH` or `postgresql://…`. Connects lazily.

        Raises:
            UnusableDatabase: the SQLite library is older than 3.51.3, or the URL names another database.
        """
        writer, reader, threads = open_engines(url, readers=readers)
        return cls(writer, reader, threads=threads)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._writer.dialect.name

    def read(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` on one consistent snapshot; writing there is an error."""
        return self._run(self._reader, nullcontext(), fn)

    def write(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` in a transaction that commits when `fn` returns and rolls back when it raises.

        Raises:
            RuntimeError: called within a write of the same thread, which on SQLite would wait for itself.
        """
        if getattr(self._thread, "writes", False):
            raise RuntimeError("a write within a write: use the open connection")
        self._thread.writes = True
        try:
            return self._run(self._writer, self._turn, fn)
        finally:
            self._thread.writes = False

    async def aread(self, fn: Callable[[Connection], T]) -> T:
        """`read` in a thread of the database's own pool."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self.read, fn)

    async def awrite(self, fn: Callable[[Connection], T]) -> T:
        """`write` in a thread of the database's own pool. Once begun it goes on even if the caller is cancelled."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, self.write, fn)

    async def in_writer(self, fn: Callable[[Database], T]) -> T:
        """Run `fn`, which calls `write` itself, in a thread of the pool that `awrite` uses."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, fn, self)

    def close(self) -> None:
        """Wait for running transactions and close every connection."""
        self._readers.shutdown()
        self._writers.shutdown()
        self._writer.dispose()
        self._reader.dispose()

    def _count_statement(self, *_: object) -> None:
        self.statements += 1

    def _run(self, engine: Engine, turn: AbstractContextManager[Any], fn: Callable[[Connection], T]) -> T:
        if os.getpid() != self._pid:
            raise RuntimeError("this Database belongs to the parent process: connect again after a fork")
        attempts = 0
        while True:
            attempts += 1
            committing = False
            try:
                self.transactions += 1
                with turn, engine.begin() as conn:
                    result = fn(conn)
                    committing = True
                return result
            except DBAPIError as error:
                # A connection that breaks while it commits leaves open what happened: that is never repeated.
                cut_off = error.connection_invalidated and not committing
                lost_race = getattr(error.orig, "sqlstate", None) in _LOST_RACE
                if attempts == ATTEMPTS or not (cut_off or lost_race):
                    raise
            time.sleep(random.uniform(0, 0.01 * 2**attempts))
