"""Upgrades and roll-backs of a database that is in use: jobs in every state, and a row in every table."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from shunter_schemas.states import NodeState, State
from shunter_store.errors import UnusableDatabase
from shunter_store.migrate import current_revision, downgrade, head_revision, is_known, upgrade
from shunter_store.sql.database import Database
from shunter_store.tables.columns import metadata
from sqlalchemy import Boolean, Column, Connection, Double, Integer, Table, insert, make_url, select, text
from support.databases import BOTH, postgres_server

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
REVISIONS = [f"{number:04}" for number in range(1, int(head_revision()) + 1)]


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of the newest schema, of the test's own."""
    if request.param == "sqlite":
        made = f"sqlite:///{tmp_path / 'shunter.db'}"
        upgrade(made)
        yield made
        return
    server, name = postgres_server(), f"shunter_upgrade_{secrets.token_hex(6)}"
    with closing(psycopg.connect(server, autocommit=True)) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        made = make_url(server).set(database=name).render_as_string(hide_password=False)
        upgrade(made)
        yield made
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def filled(url: str) -> str:
    """A job in every state, and a row in every table that speaks of each of them."""
    with closing(Database.connect(url)) as database:
        database.write(fill)
    return url


def test_a_database_in_use_goes_back_schema_by_schema_and_forward_again(filled: str) -> None:
    before = look(filled, everything)
    seen = []

    for revision in reversed(REVISIONS[:-1]):
        downgrade(filled, revision)
        seen.append(look(filled, lambda conn: (current_revision(conn), count(conn, "jobs"), count(conn, "nodes"))))
    old = look(filled, counts)
    upgrade(filled)
    after = look(filled, everything)

    assert seen == [(revision, len(State), len(State)) for revision in reversed(REVISIONS[:-1])]
    assert look(filled, current_revision) == head_revision()
    for table in ("jobs", "nodes", "events", "transitions", "checkpoints", "log_chunks", "artifacts", "idempotency"):
        assert [row["key"] for row in after[table]] == [row["key"] for row in before[table]], table
    assert {row["state"] for row in after["jobs"]} == {str(state) for state in State}
    assert [row["accrued_usd"] for row in after["nodes"]] == [row["accrued_usd"] for row in before["nodes"]]
    assert all(old.values()), "a table without a row proves nothing"
    assert {name: len(after[name]) for name in old} == old, "an upgrade loses no row of any table"


def test_every_table_was_filled(filled: str) -> None:
    empty = look(filled, lambda conn: [name for name in metadata.tables if not count(conn, name)])

    assert empty == []


def test_there_is_no_way_back_to_what_is_not_older(filled: str) -> None:
    downgrade(filled, REVISIONS[1])

    with pytest.raises(UnusableDatabase, match=REVISIONS[-1]):
        downgrade(filled, REVISIONS[-1])
    with pytest.raises(UnusableDatabase, match="9999"):
        downgrade(filled, "9999")

    assert look(filled, current_revision) == REVISIONS[1]
    assert (is_known(REVISIONS[0]), is_known("9999")) == (True, False)


def test_a_way_back_that_fails_leaves_everything(filled: str) -> None:
    before = look(filled, everything)
    with closing(Database.connect(filled)) as database:
        database.write(lambda conn: conn.execute(text("DROP TABLE payers")))

    with pytest.raises(Exception, match="payers"):
        downgrade(filled, REVISIONS[0])

    assert look(filled, current_revision) == head_revision()
    assert look(filled, lambda conn: count(conn, "jobs")) == len(before["jobs"])


# --- rows of every table -----------------------------------------------------------------------------------------


def fill(conn: Connection) -> None:
    """One row a state in every table; tables that hold one row at most get one."""
    for table in metadata.sorted_tables:
        for number, state in enumerate(State):
            if table.name == "deployment" and number:
                continue
            conn.execute(insert(table).values(row_of(table, number, state)))


def row_of(table: Table, number: int, state: State) -> dict[str, Any]:
    given: dict[str, Any] = {
        "job_id": f"job_{number}",
        "node_id": f"node_{number}",
        "state": state,
        "labels": {"team": f"t{number}"},
        "urgency": 2,
        "facts": {"source_commit": f"{number:040x}"},
        "metric_seq": 3,
    }
    if table.name == "nodes":
        given |= {"state": list(NodeState)[number % len(NodeState)], "accrued_usd": 1.5 + number}
    own = {"jobs": {"id": f"job_{number}"}, "nodes": {"id": f"node_{number}"}}.get(table.name, {})
    return {column.name: (given | own).get(column.name, value_of(column, number)) for column in table.columns}


def value_of(column: Column[Any], number: int) -> Any:
    """Something that fits: with a number of its own where it has to be unique."""
    words = getattr(column.type, "words", None)
    if words is not None:
        return next(iter(words))
    kind = column.type
    if isinstance(kind, Boolean):
        return True
    if type(kind).__name__ == "UtcTime":
        return AT
    if isinstance(kind, Double):
        return 0.5
    if isinstance(kind, Integer):
        return number + 1
    if type(kind).__name__ == "JSON":
        return {"number": number}
    return f"{column.name[:3]}{number}"


def everything(conn: Connection) -> dict[str, list[dict[str, Any]]]:
    """Every row as text, with its primary key under `key`."""
    found = {}
    for name, table in metadata.tables.items():
        keys = list(table.primary_key)
        rows = conn.execute(select(table).order_by(*keys)).mappings()
        found[name] = [
            {**{column: str(value) for column, value in row.items()}, "key": tuple(str(row[key.name]) for key in keys)}
            for row in rows
        ]
    return found


def count(conn: Connection, name: str) -> int:
    return int(conn.execute(text(f"SELECT count(*) FROM {name}")).scalar_one())


def counts(conn: Connection) -> dict[str, int]:
    """How many rows each of our tables has that there is."""
    return {name: count(conn, name) for name in metadata.tables if conn.dialect.has_table(conn, name)}


def look(url: str, fn: Any) -> Any:
    with closing(Database.connect(url, readers=1)) as database:
        return database.read(fn)
