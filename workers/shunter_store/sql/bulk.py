"""Many rows by one statement, and for any number of keys the same one: what several ask for costs little more than one.

On PostgreSQL rows travel as one JSON text, which the database takes apart: one statement, compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    CursorResult,
    Executable,
    Table,
    Text,
    any_,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
    type_coerce,
)
from sqlalchemy.dialects import postgresql

from shunter_store.sql.sqltypes import dump_json

_ROWS: Final = "rows"
_KEYS: Final = "keys"
_AT_ONCE: Final = 500
"""Rows of one statement on SQLite, which takes 32,766 parameters."""

IsAsked = Callable[[ColumnElement[Any]], ColumnElement[bool]]
"""Whether a column holds one of the keys that are asked for."""


class BulkInsert:
    """`INSERT` of any number of rows.

    A row holds the named columns as the database keeps them: moments in seconds, words of closed lists as text, JSON as
    it is. `constants` are the columns that are alike in all rows. With `returning`, a row that is in the way of another
    is left out, and those columns of the others come back.
    """

    def __init__(self, table: Table, names: Sequence[str], *, returning: Sequence[str] = (), **constants: Any) -> None:
        self._table = table
        self._names = names
        self._constants = constants
        self._json = [isinstance(table.c[name].type, JSON) for name in names]
        self._fixed = [_plain(value) for value in constants.values()]
        self._returning = returning
        into = f"INSERT INTO {table.name} ({_quoted([*names, *constants])}) VALUES "  # noqa: S608 - our own names
        self._into = into
        self._row = f"({', '.join('?' for _ in (*names, *constants))})"
        self._rest = f" ON CONFLICT DO NOTHING RETURNING {_quoted(returning)}" if returning else ""
        self._postgresql = self.taken_apart(_ROWS)

    def run(self, conn: Connection, rows: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        """Insert them, in their order; with `returning`, what came back."""
        if conn.dialect.name == "postgresql":
            return self._came_back(conn.execute(self._postgresql, {_ROWS: dump_json(rows)}))
        back: list[Any] = []
        for first in range(0, len(rows), _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            values = tuple(value for row in some for value in (*self._values(row), *self._fixed))
            # Plain parameters: SQLite would parse a row's JSON anew for each of its columns.
            statement = self._into + ",".join([self._row] * len(some)) + self._rest
            back += self._came_back(conn.exec_driver_sql(statement, values))
        return back

    def _values(self, row: Mapping[str, Any]) -> Iterator[Any]:
        for name, is_json in zip(self._names, self._json, strict=True):
            yield dump_json(row[name]) if is_json else row[name]

    def _came_back(self, result: CursorResult[Any]) -> Sequence[Any]:
        return result.all() if self._returning else ()

    def taken_apart(self, parameter: str) -> Any:
        """PostgreSQL's statement, with the rows as JSON under this parameter."""
        columns = [column(name, self._table.c[name].type) for name in self._names]
        document = cast(bindparam(parameter, type_=Text), postgresql.JSON)
        row = func.json_to_recordset(document).table_valued(*columns, name="each").render_derived(with_types=True)
        fixed = [type_coerce(value, self._table.c[name].type).label(name) for name, value in self._constants.items()]
        rows = select(*(row.c[name] for name in self._names), *fixed)
        filled = [*self._names, *self._constants]
        into = postgresql.insert(self._table).from_select(filled, rows, include_defaults=False)
        back = [self._table.c[name] for name in self._returning]
        return into.on_conflict_do_nothing().returning(*back) if back else into


class BulkInserts:
    """Several of them in their order; on PostgreSQL in one statement, which is one round trip."""

    def __init__(self, *inserts: BulkInsert) -> None:
        self._inserts = inserts
        *others, last = (insert.taken_apart(f"{_ROWS}_{place}") for place, insert in enumerate(inserts))
        parts = [other.returning(literal_column("1")).cte(f"part_{place}") for place, other in enumerate(others)]
        self._postgresql = last.add_cte(*parts)

    def run(self, conn: Connection, *rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows into each."""
        if conn.dialect.name == "postgresql":
            conn.execute(self._postgresql, {f"{_ROWS}_{place}": dump_json(its) for place, its in enumerate(rows)})
            return
        for insert, its in zip(self._inserts, rows, strict=True):
            insert.run(conn, its)


class ByKeys:
    """A `SELECT` for any number of texts as keys."""

    def __init__(self, build: Callable[[IsAsked], Executable]) -> None:
        self._by_dialect = {"sqlite": build(_sqlite_is_asked), "postgresql": build(_postgresql_is_asked)}

    def run(self, conn: Connection, keys: Iterable[str]) -> Sequence[Any]:
        """The rows for these keys."""
        asked = list(keys)
        value = dump_json(asked) if conn.dialect.name == "sqlite" else asked
        return conn.execute(self._by_dialect[conn.dialect.name], {_KEYS: value}).all()


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _plain(value: Any) -> Any:
    return dump_json(value) if isinstance(value, dict | list) else value


def _sqlite_is_asked(one: ColumnElement[Any]) -> ColumnElement[bool]:
    keys = func.json_each(bindparam(_KEYS, type_=Text)).table_valued("value", name="asked")
    return one.in_(select(keys.c.value))


def _postgresql_is_asked(one: ColumnElement[Any]) -> ColumnElement[bool]:
    return one == any_(bindparam(_KEYS, type_=postgresql.ARRAY(Text)))
