"""Column types, the database's clock, and statements that differ by dialect."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import JSON, BigInteger, Connection, Dialect, Double, Integer, String, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import BindParameter, ColumnElement
from sqlalchemy.sql.expression import bindparam, type_coerce
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

E = TypeVar("E", bound=StrEnum)
S = TypeVar("S")

_LAST_S: Final = 253_370_764_800.0
"""9999-01-01."""


class UtcTime(TypeDecorator[datetime]):
    """Seconds since the epoch in the database (both keep them alike), aware UTC datetimes in Python."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> float | None:
        return None if value is None else value.timestamp()

    def process_result_value(self, value: float | None, dialect: Dialect) -> datetime | None:
        return None if value is None else datetime.fromtimestamp(value, UTC)


class Word(TypeDecorator[E], Generic[E]):
    """A member of a closed list, kept as its word."""

    impl = String
    cache_ok = True

    def __init__(self, words: type[E]) -> None:
        super().__init__()
        self.words = words

    def process_bind_param(self, value: E | None, dialect: Dialect) -> str | None:
        return None if value is None else str(self.words(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> E | None:
        return None if value is None else self.words(value)


Json: Final = JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
"""JSON in both databases; Python's None is SQL's NULL."""

BigId: Final = BigInteger().with_variant(Integer(), "sqlite")
"""A counted 64-bit id (SQLite counts INTEGER primary keys only)."""


def dump_json(value: Any) -> str:
    """JSON as the store writes it: compact, and never NaN or infinity, which no other reader takes."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


class db_now(FunctionElement[float]):
    """The database's own clock at the start of the statement, in seconds since the epoch.

    A column of `UtcTime` compares with it directly. Constant within a statement, so an index on the column serves.
    """

    type = Double()
    inherit_cache = True


@compiles(db_now, "sqlite")
def _sqlite_now(element: db_now, compiler: Any, **kwargs: Any) -> str:
    return "unixepoch('subsec')"


@compiles(db_now, "postgresql")
def _postgresql_now(element: db_now, compiler: Any, **kwargs: Any) -> str:
    return "CAST(extract(epoch FROM statement_timestamp()) AS DOUBLE PRECISION)"


def now_as_time() -> ColumnElement[datetime]:
    """The database's clock, selected as a datetime."""
    return type_coerce(db_now(), UtcTime)


_NOW: Final = select(now_as_time())


def clock_of(conn: Connection) -> datetime:
    """What the database's clock says: the one clock that every process of the service shares."""
    return conn.execute(_NOW).scalar_one()


def time_of(epoch_s: float) -> datetime:
    """The moment that a node's clock named; one that no calendar holds is moved to the nearest that one does."""
    return datetime.fromtimestamp(min(max(epoch_s, 0.0), _LAST_S), UTC)


def seconds(name: str) -> BindParameter[float]:
    """A parameter that holds seconds, for arithmetic with `db_now()`."""
    return bindparam(name, type_=Double())


class PerDialect(Generic[S]):
    """One statement in the words of each dialect (`ON CONFLICT` is no generic SQLAlchemy), built once."""

    def __init__(self, build: Callable[[Any], S]) -> None:
        self._by_dialect = {"sqlite": build(sqlite.insert), "postgresql": build(postgresql.insert)}

    def on(self, conn: Connection) -> S:
        return self._by_dialect[conn.dialect.name]
