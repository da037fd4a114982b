"""Many rows by one statement: rows and keys travel as one value, and the database takes it apart.

The statement is the same whatever their number, so that it is compiled once, and is one round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
    true,
    type_coerce,
)
from sqlalchemy.dialects import postgresql, sqlite

from shunter_store.sqltypes import dump_json

_ROWS: Final = "rows"
_KEYS: Final = "keys"

IsAsked = Callable[[ColumnElement[Any]], ColumnElement[bool]]
"""Whether a column holds one of the keys that are asked for."""


class BulkInsert:
    """`INSERT` of any number of rows.

    A row holds the named columns as the database keeps them: moments in seconds, words of closed lists as text, JSON as
    it is. `constants` are the columns that are alike in all rows. With `returning`, a row that is in the way of another
    is left out, and those columns of the others come back.
    """

    def __init__(self, table: Table, names: Sequence[str], *, returning: Sequence[str] = (), **constants: Any) -> None:
        columns = [table.c[name] for name in names]
        fixed = [type_coerce(value, table.c[name].type).label(name) for name, value in constants.items()]
        filled = [*names, *constants]
        wanted = [table.c[name] for name in returning]
        self._returns = bool(wanted)
        sources = {"sqlite": (sqlite.insert, _sqlite_rows), "postgresql": (postgresql.insert, _postgresql_rows)}
        self._by_dialect: dict[str, Any] = {}
        for dialect, (insert, rows) in sources.items():
            statement: Any = insert(table).from_select(
                filled, rows(columns).add_columns(*fixed), include_defaults=False
            )
            self._by_dialect[dialect] = statement.on_conflict_do_nothing().returning(*wanted) if wanted else statement

    def run(self, conn: Connection, rows: Iterable[Mapping[str, Any]]) -> Sequence[Any]:
        """Insert them, in their order; with `returning`, what came back."""
        result = conn.execute(self._by_dialect[conn.dialect.name], {_ROWS: dump_json(list(rows))})
        return result.all() if self._returns else ()


class ByKeys:
    """A `SELECT` for any number of texts as keys."""

    def __init__(self, build: Callable[[IsAsked], Select[Any]]) -> None:
        self._by_dialect = {"sqlite": build(_sqlite_is_asked), "postgresql": build(_postgresql_is_asked)}

    def run(self, conn: Connection, keys: Iterable[str]) -> Sequence[Any]:
        """The rows for these keys."""
        asked = list(keys)
        value = dump_json(asked) if conn.dialect.name == "sqlite" else asked
        return conn.execute(self._by_dialect[conn.dialect.name], {_KEYS: value}).all()


def _sqlite_rows(columns: Sequence[Column[Any]]) -> Select[Any]:
    row = func.json_each(bindparam(_ROWS, type_=Text)).table_valued("value", name="each").c.value
    fields = (func.json_extract(row, literal_column(f"'$.{one.name}'")).label(one.name) for one in columns)
    return select(*fields).where(true())  # SQLite would read an ON that follows FROM as that of a join


def _postgresql_rows(columns: Sequence[Column[Any]]) -> Select[Any]:
    document = cast(bindparam(_ROWS, type_=Text), postgresql.JSON)
    fields = [column(one.name, one.type) for one in columns]
    row = func.json_to_recordset(document).table_valued(*fields, name="each").render_derived(with_types=True)
    return select(*(row.c[one.name] for one in columns))


def _sqlite_is_asked(one: ColumnElement[Any]) -> ColumnElement[bool]:
    keys = func.json_each(bindparam(_KEYS, type_=Text)).table_valued("value", name="asked")
    return one.in_(select(keys.c.value))


def _postgresql_is_asked(one: ColumnElement[Any]) -> ColumnElement[bool]:
    return one == any_(bindparam(_KEYS, type_=postgresql.ARRAY(Text)))
