"""The migrations make what the models say, on both databases, once, whoever starts."""

import re
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from shunter_store import tables  # noqa: F401 - fills the metadata
from shunter_store.errors import UnusableDatabase
from shunter_store.migrate import alembic_config, current_revision, head_revision, upgrade
from shunter_store.sql.database import Database
from shunter_store.tables.columns import metadata
from sqlalchemy import Connection, make_url, text
from support.databases import BOTH, postgres_server


@pytest.fixture(params=BOTH)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without any table."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'new' / 'shunter.db'}"
        return
    server, name = postgres_server(), f"shunter_empty_{secrets.token_hex(6)}"
    with closing(psycopg.connect(server, autocommit=True)) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        yield make_url(server).set(database=name).render_as_string(hide_password=False)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_an_upgrade_leads_to_the_head_and_a_second_changes_nothing(empty_url: str) -> None:
    upgrade(empty_url)
    first = look(empty_url, schema)

    upgrade(empty_url)

    assert look(empty_url, current_revision) == head_revision()
    assert look(empty_url, schema) == first


def test_the_head_is_the_newest_file() -> None:
    assert ScriptDirectory.from_config(alembic_config()).get_heads() == [head_revision()]


def test_models_and_migrations_say_the_same(empty_url: str) -> None:
    upgrade(empty_url)

    difference = look(
        empty_url,
        lambda conn: compare_metadata(MigrationContext.configure(conn, opts={"compare_type": True}), metadata),
    )

    assert difference == []


def test_the_models_make_exactly_what_the_migrations_make(empty_url: str) -> None:
    upgrade(empty_url)
    migrated = look(empty_url, schema)
    with closing(Database.connect(empty_url)) as database:
        database.write(metadata.drop_all)
        database.write(metadata.create_all)

    assert look(empty_url, schema) == migrated


def test_what_jobs_had_before_is_found_by_the_lists_of_the_second_schema(empty_url: str) -> None:
    make_parent(empty_url)
    with closing(Database.connect(empty_url)) as database:
        database.write(lambda conn: migrate_to(conn, "0001"))
        database.write(lambda conn: conn.execute(text(OLD_JOB)))
        database.write(lambda conn: conn.execute(text(OLD_PROGRESS)))

    upgrade(empty_url)

    assert look(empty_url, lambda conn: conn.execute(text("SELECT * FROM job_labels ORDER BY key")).all()) == [
        ("job_1", "default", "run", "1", 7.5),
        ("job_1", "default", "team", "nlp", 7.5),
    ]
    assert look(empty_url, lambda conn: conn.execute(text("SELECT source_commit FROM jobs")).scalar()) == "5f70bf18"
    assert look(empty_url, lambda conn: conn.execute(text("SELECT generation, step FROM progress")).all()) == [(2, 40)]


def test_of_four_that_start_at_once_one_upgrades(empty_url: str) -> None:
    start = threading.Barrier(4)

    def begin(_: int) -> None:
        start.wait()
        upgrade(empty_url)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(begin, range(4)))

    assert look(empty_url, current_revision) == head_revision()


def test_an_upgrade_that_fails_leaves_nothing(empty_url: str) -> None:
    make_parent(empty_url)
    with closing(Database.connect(empty_url)) as database:
        database.write(lambda conn: conn.execute(text("CREATE TABLE transitions (x INTEGER)")))

    with pytest.raises(Exception, match="already exists"):
        upgrade(empty_url)

    assert look(empty_url, current_revision) is None
    assert look(empty_url, table_names) == ["transitions"]


def test_a_database_of_a_newer_shunter_is_refused(empty_url: str) -> None:
    upgrade(empty_url)
    with closing(Database.connect(empty_url)) as database:
        database.write(lambda conn: conn.execute(text("UPDATE alembic_version SET version_num = '9999'")))

    with pytest.raises(UnusableDatabase, match="9999"):
        upgrade(empty_url)


OLD_JOB = """
INSERT INTO jobs (id, project, created_by, name, labels, priority, spec, state, health, generation, revision, event_seq,
    log_lines, facts, user_restarts, node_recoveries, created_at, updated_at, spec_text)
VALUES ('job_1', 'default', 'me', 'old', '{"team": "nlp", "run": "1"}', 2, '{}', 'running', 'ok', 2, 9, 9,
    0, '{"source_commit": "5f70bf18"}', 0, 0, 7.5, 7.5, '{}')
"""
OLD_PROGRESS = """
INSERT INTO progress (job_id, generation, at, step, "values") VALUES ('job_1', 2, 8.0, 40, '{}')
"""


def migrate_to(conn: Connection, revision: str) -> None:
    config = alembic_config()
    config.attributes["connection"] = conn
    command.upgrade(config, revision)


def look(url: str, fn: Any) -> Any:
    with closing(Database.connect(url, readers=1)) as database:
        return database.read(fn)


def schema(conn: Connection) -> list[Any]:
    """Everything that the database's own catalogue says of our tables and indexes."""
    if conn.dialect.name == "sqlite":
        made = conn.execute(text("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE '%alembic%'"))
        return sorted((name, sorted(parts_of(sql or ""))) for name, sql in made)
    columns = (
        "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default "
        "FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version'"
    )
    indexes = (
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
    )
    constraints = (
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = 'public'::regnamespace AND conname NOT LIKE 'alembic%'"
    )
    options = "SELECT relname, reloptions::text FROM pg_class WHERE reloptions IS NOT NULL AND relkind = 'r'"
    return [sorted(map(str, conn.execute(text(sql)))) for sql in (columns, indexes, constraints, options)]


def parts_of(sql: str) -> list[str]:
    """What a statement says, whatever the order and the lines: a column that was added later stands last."""
    opening, _, rest = sql.partition("(")
    body, _, closing = rest.rpartition(")")
    return [opening, closing, *(part.strip() for part in re.split(r",(?![^()]*\))", body))]


def table_names(conn: Connection) -> list[str]:
    sql = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
        "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
    }
    return sorted(conn.execute(text(sql[conn.dialect.name])).scalars())


def make_parent(url: str) -> None:
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).parent.mkdir()
