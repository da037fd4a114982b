"""A migrated, empty database for a test, in both kinds: take the fixture `database` or `database_url`.

PostgreSQL runs where SHUNTER_TEST_POSTGRES_URL names a server (`deploy/test-postgres.sh` starts one); otherwise that
half skips, which is a failure under CI=true.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from shunter_store import tables  # noqa: F401 - fills the metadata
from shunter_store.migrate import upgrade
from shunter_store.sql.database import Database
from shunter_store.tables.columns import metadata
from sqlalchemy import make_url

_OPENED: dict[str, Database] = {}
"""The PostgreSQL database of this test run by its URL: opened once, since a connection there is a process."""

BOTH = ("sqlite", pytest.param("postgresql", marks=pytest.mark.postgres))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """The test's own empty database, open. Do not close it: that of PostgreSQL serves every test."""
    if database_url in _OPENED:
        yield _OPENED[database_url]
        return
    with closing(Database.connect(database_url)) as opened:
        yield opened


@pytest.fixture(params=BOTH)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of the test's own empty database; both kinds in turn."""
    if request.param == "sqlite":
        return fresh_sqlite(request.getfixturevalue("sqlite_template"), tmp_path)
    url: str = request.getfixturevalue("postgres_database")
    empty(_OPENED[url])
    return url


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """URL of an empty SQLite database, for tests of what only SQLite does."""
    return fresh_sqlite(sqlite_template, tmp_path)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file that tests copy, which is quicker than to migrate each."""
    path = tmp_path_factory.mktemp("template") / "shunter.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_database() -> Iterator[str]:
    """URL of a migrated database of this test run's own on the test server."""
    server = postgres_server()
    name = f"shunter_test_{secrets.token_hex(6)}"
    with closing(psycopg.connect(server, autocommit=True)) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        url = make_url(server).set(database=name).render_as_string(hide_password=False)
        upgrade(url)
        with closing(Database.connect(url)) as _OPENED[url]:
            yield url
        del _OPENED[url]
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def postgres_server() -> str:
    """The test server's URL, or no test."""
    url = os.environ.get("SHUNTER_TEST_POSTGRES_URL")
    if url is None:
        reason = "SHUNTER_TEST_POSTGRES_URL names no PostgreSQL server"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return url


def fresh_sqlite(template: Path, folder: Path) -> str:
    """A copy of the template in `folder`."""
    path = folder / "shunter.db"
    shutil.copyfile(template, path)
    return f"sqlite:///{path}"


def empty(database: Database) -> None:
    """Delete every row; quicker than to truncate tables that hold a few."""
    statements = ";".join(f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables))
    database.write(lambda conn: conn.exec_driver_sql(statements))
