"""Engines for the two databases, set up as they were measured to be safe."""

from __future__ import annotations

import random
import time
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url

from shunter_store.errors import UnusableDatabase
from shunter_store.sql.sqltypes import dump_json

OLDEST_SQLITE: Final = (3, 51, 3)
"""Older libraries can corrupt a WAL database when two connections write and checkpoint at once."""

_BUSY_S: Final = 15.0
"""How long a writer waits for writers of other processes before it gives up."""

_PRAGMAS: Final = (
    "journal_mode=WAL",
    "synchronous=NORMAL",
    "foreign_keys=ON",
    "temp_store=MEMORY",
    "journal_size_limit=67108864",
)

_IDLE_IN_TRANSACTION_MS: Final = 20_000

_CONNECTION: Final[dict[str, Any]] = {
    # Prepared statements break behind a transaction pooler.
    "prepare_threshold": None,
    "connect_timeout": 10,
    # A server that vanished without a word is noticed within half a minute, not after the kernel's two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def open_engines(url: str, *, readers: int) -> tuple[Engine, Engine, int]:
    """A writing engine, a reading engine and the number of threads that use them well.

    Raises:
        UnusableDatabase: see `Database.connect`.
    """
    parsed = make_url(url)
    match parsed.get_backend_name():
        case "sqlite":
            return *_sqlite(parsed, readers), readers
        case "postgresql":
            return *_postgresql(parsed, max(readers, 8)), max(readers, 8)
        case other:
            raise UnusableDatabase(f"{other} is not supported: use sqlite or postgresql")


def _sqlite(url: URL, readers: int) -> tuple[Engine, Engine]:
    if url.database in (None, "", ":memory:"):
        raise UnusableDatabase("an in-memory SQLite database cannot be shared by processes: name a file")
    common: dict[str, Any] = {
        "module": sqlite_module(),
        "json_serializer": dump_json,
        "hide_parameters": True,
        "connect_args": {"isolation_level": None, "check_same_thread": False},
        "max_overflow": 0,
    }
    url = url.set(drivername="sqlite+pysqlite")
    writer = create_engine(url, pool_size=1, **common)
    reader = create_engine(url, pool_size=readers, **common)
    event.listen(writer, "connect", _prepare_sqlite_writer)
    event.listen(reader, "connect", _prepare_sqlite_reader)
    event.listen(writer, "begin", _begin_immediate)
    event.listen(reader, "begin", _begin_deferred)
    return writer, reader


def sqlite_module() -> ModuleType:
    """The bundled SQLite where it is installed, else Python's own if that is new enough."""
    try:
        module = import_module("pysqlite3.dbapi2")
    except ImportError:
        module = import_module("sqlite3.dbapi2")
    if module.sqlite_version_info < OLDEST_SQLITE:
        found, needed = module.sqlite_version, ".".join(map(str, OLDEST_SQLITE))
        raise UnusableDatabase(
            f"SQLite {found} can corrupt a database that several connections write (fixed in {needed}): "
            "install pysqlite3, or use PostgreSQL"
        )
    return module


def _prepare_sqlite_writer(connection: Any, _record: object) -> None:
    # Short, because SQLite's own waiting grows to 100 ms a look, which starves; _begin_immediate looks again.
    _pragmas(connection, "busy_timeout=20")


def _prepare_sqlite_reader(connection: Any, _record: object) -> None:
    _pragmas(connection, "busy_timeout=15000", "query_only=ON")


def _pragmas(connection: Any, *more: str) -> None:
    connection.execute("PRAGMA busy_timeout=15000")
    for pragma in (*_PRAGMAS, *more):
        # Of several that open a new file at once, SQLite lets one turn it to WAL and refuses the others unasked.
        _patiently(connection, f"PRAGMA {pragma}")


def _begin_deferred(conn: Connection) -> None:
    conn.exec_driver_sql("BEGIN")


def _begin_immediate(conn: Connection) -> None:
    _patiently(conn.connection.driver_connection, "BEGIN IMMEDIATE")


def _patiently(driver: Any, statement: str) -> None:
    give_up = time.monotonic() + _BUSY_S
    while True:
        try:
            driver.execute(statement)
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(random.uniform(0, 0.005))
        else:
            return


def _postgresql(url: URL, threads: int) -> tuple[Engine, Engine]:
    common: dict[str, Any] = {
        "json_serializer": dump_json,
        "hide_parameters": True,
        "connect_args": _CONNECTION,
        "pool_size": threads,
        "max_overflow": 0,
        "pool_pre_ping": False,
    }
    url = url.set(drivername="postgresql+psycopg")
    writer = create_engine(url, **common)
    reader = create_engine(url, isolation_level="REPEATABLE READ", **common)
    event.listen(writer, "connect", _prepare_postgresql)
    event.listen(reader, "connect", _prepare_postgresql)
    event.listen(reader, "connect", _prepare_postgresql_reader)
    return writer, reader


def _prepare_postgresql(connection: Any, _record: object) -> None:
    """Whoever vanishes or stands still within a transaction lets go of its locks: others would wait for ever."""
    connection.execute(f"SET idle_in_transaction_session_timeout = {_IDLE_IN_TRANSACTION_MS}")
    connection.commit()


def _prepare_postgresql_reader(connection: Any, _record: object) -> None:
    connection.read_only = True
