"""One statement for each of many rows.

On PostgreSQL for all of them at once, the rows as JSON that the database takes apart; on SQLite, where a statement
costs no more than a function call, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Double, FromClause, Table, Text, bindparam, cast, column, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.type_api import TypeEngine

from shunter_store.sql.sqltypes import UtcTime, dump_json

_ROWS: Final = "rows"

Get = Callable[[str], ColumnElement[Any]]
"""The value of the row that the statement is carried out for, by name."""


class ForRows:
    """A `SELECT` or `UPDATE` that speaks of one row of values by `get(name)`.

    Values are as the database keeps them: moments in seconds, words as text, JSON as it is. An `UPDATE` touches each of
    its rows once: let no two rows of values name the same one.
    """

    def __init__(self, types: Mapping[str, TypeEngine[Any]], build: Callable[[Get], Any]) -> None:
        rows = _taken_apart(types)
        self._postgresql = build(lambda name: rows.c[name])
        self._sqlite = build(lambda name: bindparam(f"row_{name}", type_=types[name]))

    def run(self, conn: Connection, rows: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        """What comes back for all of them; on PostgreSQL in no order."""
        if not rows:
            return ()
        if conn.dialect.name == "postgresql":
            return conn.execute(self._postgresql, {_ROWS: dump_json(rows)}).all()
        back: list[Any] = []
        for row in rows:
            back += conn.execute(self._sqlite, {f"row_{name}": value for name, value in row.items()}).all()
        return back


class UpsertRows:
    """`INSERT … ON CONFLICT (key) DO UPDATE` of any number of rows with the same columns."""

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        key: Sequence[str],
        where: Callable[[Any], ColumnElement[bool]] | None = None,
    ) -> None:
        """`where`: whether the row that would be written (its argument) takes the place of the one that is there."""
        others = [name for name in names if name not in key]

        def on_conflict(statement: Any) -> Any:
            set_ = {name: statement.excluded[name] for name in others}
            only = None if where is None else where(statement.excluded)
            return statement.on_conflict_do_update(index_elements=list(key), set_=set_, where=only)

        rows = _taken_apart({name: table.c[name].type for name in names})
        taken = select(*(rows.c[name] for name in names))
        self._postgresql = on_conflict(postgresql.insert(table).from_select(list(names), taken, include_defaults=False))
        values = {name: bindparam(f"row_{name}", type_=_kept_type(table.c[name].type)) for name in names}
        self._sqlite = on_conflict(sqlite.insert(table).values(values))

    def run(self, conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write them: moments in seconds, JSON as it is."""
        if not rows:
            return
        if conn.dialect.name == "postgresql":
            conn.execute(self._postgresql, {_ROWS: dump_json(rows)})
        else:
            conn.execute(self._sqlite, [{f"row_{name}": value for name, value in row.items()} for row in rows])


def _kept_type(type_: TypeEngine[Any]) -> TypeEngine[Any]:
    return Double() if isinstance(type_, UtcTime) else type_


def _taken_apart(types: Mapping[str, TypeEngine[Any]]) -> FromClause:
    columns = [column(name, type_) for name, type_ in types.items()]
    document = cast(bindparam(_ROWS, type_=Text), postgresql.JSON)
    return func.json_to_recordset(document).table_valued(*columns, name="each").render_derived(with_types=True)
