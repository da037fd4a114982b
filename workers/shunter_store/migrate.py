"""Brings a database to the newest schema, or back to an older one. Alembic is imported only where it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, inspect, make_url, text

from shunter_store.errors import UnusableDatabase
from shunter_store.sql.database import Database

if TYPE_CHECKING:
    from alembic.config import Config

_HEAD: Final = "0011"
"""The newest revision; a test proves it equal to the newest file of `migrations/versions`."""

_LOCK_KEY: Final = 0x5348_554E
"""PostgreSQL advisory lock that upgrades hold ("SHUN")."""


def head_revision() -> str:
    """The schema that this code needs."""
    return _HEAD


def current_revision(conn: Connection) -> str | None:
    """The schema that the database has; None: none yet."""
    if not inspect(conn).has_table("alembic_version"):
        return None
    return conn.execute(text("SELECT version_num FROM alembic_version")).scalar()


def upgrade(url: str) -> None:
    """Upgrade in one transaction, under a lock: of two that start at once, the second finds the work done.

    Raises:
        UnusableDatabase: the database has a revision that this code does not know, so a newer Shunter wrote it.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    database = Database.connect(url, readers=1)
    try:
        if database.read(current_revision) != _HEAD:
            database.write(_upgrade)
    finally:
        database.close()


def downgrade(url: str, revision: str) -> None:
    """Back to an older schema, in one transaction: for an older Shunter. Every role has to be stopped before.

    What the older schema has no place for is lost; jobs, nodes, events, logs, checkpoints and money stay.

    Raises:
        UnusableDatabase: there is no such schema below the one that the database has.
    """
    database = Database.connect(url, readers=1)
    try:
        database.write(lambda conn: _downgrade(conn, revision))
    finally:
        database.close()


def is_known(revision: str) -> bool:
    """Whether this code can bring a database of this schema to its own."""
    return revision in _known()


def _upgrade(conn: Connection) -> None:
    _lock(conn)
    found = current_revision(conn)
    if found == _HEAD:
        return
    from alembic import command

    if found is not None and found not in _known():
        raise UnusableDatabase(f"the database has schema {found}, which this Shunter does not know: use a newer one")
    config = alembic_config()
    config.attributes["connection"] = conn
    command.upgrade(config, "head")


def _downgrade(conn: Connection, revision: str) -> None:
    _lock(conn)
    known, found = _known(), current_revision(conn)
    if found not in known or revision not in known or revision > found:
        raise UnusableDatabase(
            f"there is no way back from schema {found} to {revision}; known are {', '.join(sorted(known))}"
        )
    from alembic import command

    config = alembic_config()
    config.attributes["connection"] = conn
    command.downgrade(config, revision)


def _lock(conn: Connection) -> None:
    """One at a time. On SQLite the write transaction itself is the lock."""
    if conn.dialect.name == "postgresql":
        conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})


def _known() -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()}


def alembic_config() -> Config:
    """Alembic's settings; put an open connection into `attributes["connection"]` before a command runs."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config
