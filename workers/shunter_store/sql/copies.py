"""Copies of the embedded database, made while it is used, and which objects a copy speaks of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, make_url, select

from shunter_store import migrate
from shunter_store.errors import UnusableDatabase
from shunter_store.installation import deployment
from shunter_store.sql.database import Database
from shunter_store.sql.engines import sqlite_module
from shunter_store.storage import bundles
from shunter_store.tables import artifacts, checkpoints, log_chunks
from shunter_store.tables import bundles as bundles_table

_BUSY_S: Final = 30.0

_OBJECTS: Final = (select(log_chunks.c.object).distinct(), select(artifacts.c.object))
_CHECKPOINTS: Final = select(checkpoints.c.files).where(checkpoints.c.pruned_at.is_(None))
_BUNDLES: Final = select(bundles_table.c.digest)


def file_of(url: str) -> Path | None:
    """The file of an embedded database; None: it is another kind."""
    parsed = make_url(url)
    return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None


def copy_while_used(source: Path, target: Path) -> None:
    """A consistent copy by SQLite's own backup, as of one moment; writers go on meanwhile.

    Raises:
        UnusableDatabase: the source is no database, or the copy is not whole.
    """
    module = sqlite_module()
    try:
        with closing(module.connect(str(source), timeout=_BUSY_S)) as old, closing(module.connect(str(target))) as new:
            old.backup(new)
            new.execute("PRAGMA journal_mode=DELETE")
            (verdict,) = new.execute("PRAGMA integrity_check(1)").fetchone()
    except module.Error as error:
        raise UnusableDatabase(f"{source} cannot be copied: {error}") from error
    if verdict != "ok":
        raise UnusableDatabase(f"{source} is damaged: {verdict}")
    _sync(target)


def read_copy(path: Path, fn: Any) -> Any:
    """What a function of a connection reads in a copy."""
    with closing(Database.connect(f"sqlite:///{path}", readers=1)) as database:
        found = database.read(fn)
    _to_one_file(path)
    return found


def make_usable(path: Path, reason: str) -> None:
    """Bring a restored copy to this code's schema, and hold the reaping of what it may not know.

    Raises:
        UnusableDatabase: a newer Shunter wrote it.
    """
    url = f"sqlite:///{path}"
    migrate.upgrade(url)
    with closing(Database.connect(url, readers=1)) as database:
        database.write(lambda conn: deployment.hold(conn, reason, by="restore"))
    _to_one_file(path)


def objects_of(conn: Connection) -> Iterator[str]:
    """Keys of all objects that rows speak of; one may come several times."""
    for statement in _OBJECTS:
        yield from conn.execute(statement).scalars()
    for files in conn.execute(_CHECKPOINTS).scalars():
        yield from (str(entry["object"]) for entry in files)
    yield from (bundles.object_key(digest) for digest in conn.execute(_BUNDLES).scalars())


def _to_one_file(path: Path) -> None:
    """Nothing of it stays in a file beside it."""
    with closing(sqlite_module().connect(str(path))) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
