"""A record that the database itself keeps of what was written: triggers that nothing in the service knows of.

What the tables say in the end may be right by chance; here every claim, move and order stands as it happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from shunter_store.sql.database import Database
from sqlalchemy import Connection


class Entry(NamedTuple):
    """One write. `fence`: the claim on the job at that moment; None: there was none."""

    number: int
    what: str
    subject: str
    before: str
    after: str
    fence: int | None


class _Watch(NamedTuple):
    """What is written down: on which event of which table, under which condition, and what of it."""

    what: str
    event: str
    table: str
    when: str
    subject: str
    before: str
    after: str
    fence: str = "NULL"


_FENCE_OF_JOB: Final = "(SELECT fence FROM job_due WHERE job_id = {})"
_OTHERS_TOLD: Final = """(SELECT count(*) FROM nodes AS other WHERE other.job_id = NEW.job_id AND other.id <> NEW.id
    AND other.desired_phase = 'run' AND other.state NOT IN ('releasing', 'gone')
    AND other.desired_generation <> NEW.desired_generation)"""

_WATCHES: Final = (
    _Watch("claim", "UPDATE OF fence", "job_due", "NEW.fence <> OLD.fence", "NEW.job_id", "OLD.fence", "NEW.fence"),
    _Watch("lease", "UPDATE OF fence", "leases", "NEW.fence <> OLD.fence", "NEW.name", "OLD.fence", "NEW.fence"),
    _Watch(
        "move",
        "UPDATE OF state",
        "jobs",
        "NEW.state <> OLD.state",
        "NEW.id",
        "OLD.state",
        "NEW.state || ' ' || COALESCE(NEW.reason, '')",
        _FENCE_OF_JOB.format("NEW.id"),
    ),
    _Watch("node", "UPDATE OF state", "nodes", "NEW.state <> OLD.state", "NEW.id", "OLD.state", "NEW.state"),
    _Watch(
        "order",
        "UPDATE OF desired_phase, desired_generation",
        "nodes",
        "NEW.desired_phase = 'run'",
        "NEW.job_id",
        _OTHERS_TOLD,
        "NEW.desired_generation",
        _FENCE_OF_JOB.format("NEW.job_id"),
    ),
    *(
        _Watch("lost", "DELETE", table, "", f"OLD.{key}", f"'{table}'", "'gone'")
        for table, key in (("jobs", "id"), ("nodes", "id"), ("events", "job_id"), ("transitions", "job_id"))
    ),
)


def begin(database: Database) -> None:
    """From now on everything is written down."""
    database.write(_set_up)


def read(database: Database) -> list[Entry]:
    """Everything so far, in order."""
    statement = "SELECT number, what, subject, was, is_now, fence FROM chaos_record ORDER BY number"
    return database.read(lambda conn: [Entry(*row) for row in conn.exec_driver_sql(statement).all()])


def _set_up(conn: Connection) -> None:
    postgres = conn.dialect.name == "postgresql"
    key = "BIGSERIAL" if postgres else "INTEGER"
    conn.exec_driver_sql(
        f"CREATE TABLE chaos_record (number {key} PRIMARY KEY, what TEXT, subject TEXT, was TEXT, is_now TEXT, "
        "fence BIGINT)"
    )
    for number, watch in enumerate(_WATCHES):
        for statement in _on_postgresql(watch, number) if postgres else _on_sqlite(watch, number):
            conn.exec_driver_sql(statement)


def _insert(watch: _Watch) -> str:
    values = ", ".join(f"CAST({part} AS TEXT)" for part in (watch.subject, watch.before, watch.after))
    return (
        f"INSERT INTO chaos_record (what, subject, was, is_now, fence) VALUES ('{watch.what}', {values}, {watch.fence})"
    )


def _on_sqlite(watch: _Watch, number: int) -> Iterator[str]:
    when = f"WHEN {watch.when}" if watch.when else ""
    yield (
        f"CREATE TRIGGER chaos_{number} AFTER {watch.event} ON {watch.table} FOR EACH ROW {when} "
        f"BEGIN {_insert(watch)}; END"
    )


def _on_postgresql(watch: _Watch, number: int) -> Iterator[str]:
    when = f"WHEN ({watch.when})" if watch.when else ""
    yield (
        f"CREATE FUNCTION chaos_{number}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {_insert(watch)}; RETURN NULL; END $$"
    )
    yield (
        f"CREATE TRIGGER chaos_{number} AFTER {watch.event} ON {watch.table} FOR EACH ROW {when} "
        f"EXECUTE FUNCTION chaos_{number}()"
    )
