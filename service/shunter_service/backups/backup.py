"""`python -m shunter_service backup FOLDER`: a copy of everything that a data directory keeps, while it is used."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import fsspec
from pydantic import ValidationError
from shunter_store import migrate
from shunter_store.errors import UnusableDatabase
from shunter_store.installation import deployment
from shunter_store.installation.settings import DataSettings
from shunter_store.sql import copies
from sqlalchemy import Connection

from shunter_service.backups import manifest
from shunter_service.backups.manifest import DATABASE, Manifest

KEPT: Final = ("api-key", "signing-key", "shunter.toml")
"""Files of the data directory beside the database and the objects."""
OBJECTS: Final = "objects"
_UNFINISHED: Final = ".unfinished"
_ROUNDS: Final = 5


class Refused(Exception):
    """A backup cannot be made; the text says why."""


def run(arguments: Sequence[str]) -> int:
    """Make one backup; the exit code."""
    options = _parse(arguments)
    try:
        data = DataSettings(data_dir=Path(options.data_dir)) if options.data_dir else DataSettings()
        made = back_up(data, Path(options.folder))
    except (Refused, UnusableDatabase, OSError, ValidationError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = sum(entry.size for entry in made.files.values())
    print(f"{options.folder}: {len(made.files)} files, {size} bytes, as of {made.created_at}")
    if made.objects_elsewhere:
        print(f"the objects are not in it: they are kept at {made.objects_elsewhere}", file=sys.stderr)
    return 0


def back_up(data: DataSettings, folder: Path) -> Manifest:
    """Write a backup into a new folder, which appears only when it is whole.

    The database is copied as of one moment. Objects are written once and never change, so they are copied beside it;
    those that the copied database speaks of are all there in the end, or the database is copied once more.

    Raises:
        Refused: the folder exists, or there is no embedded database.
        UnusableDatabase: the database cannot be read.
    """
    database = _embedded(data)
    if folder.exists():
        raise Refused(f"{folder} exists already: give a new folder")
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    draft.mkdir(mode=0o700, parents=True)
    try:
        source = objects_folder(data)
        _copy_consistently(database, source, draft)
        for name in KEPT:
            with suppress(FileNotFoundError):
                shutil.copy2(data.data_dir / name, draft / name)
        made = _describe(draft, elsewhere="" if source else data.objects_url)
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return made


def _copy_consistently(database: Path, source: Path | None, draft: Path) -> None:
    """What a checkpoint was pruned of in the middle is missing; a later copy of the database does not speak of it."""
    missing: list[str] = []
    for _ in range(_ROUNDS):
        if source is not None:
            _copy_new(source, draft / OBJECTS)
        (draft / DATABASE).unlink(missing_ok=True)
        copies.copy_while_used(database, draft / DATABASE)
        if source is None:
            return
        _copy_new(source, draft / OBJECTS)
        missing = [key for key in _keys_of(draft / DATABASE) if not (draft / OBJECTS / key).is_file()]
        if not missing:
            return
    raise Refused(f"the object store lacks {len(missing)} objects that the database speaks of, such as {missing[0]}")


def _copy_new(source: Path, target: Path) -> None:
    """Every object that is whole and was not copied yet."""
    target.mkdir(mode=0o700, exist_ok=True)
    for place, folders, names in os.walk(source):
        with suppress(ValueError):
            folders.remove(_UNFINISHED)
        below = Path(place).relative_to(source)
        for name in names:
            copy = target / below / name
            if copy.exists():
                continue
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # it was deleted meanwhile
                shutil.copyfile(Path(place) / name, copy)


def _keys_of(database: Path) -> set[str]:
    found: set[str] = copies.read_copy(database, lambda conn: set(copies.objects_of(conn)))
    return found


def _describe(draft: Path, *, elsewhere: str) -> Manifest:
    def look(conn: Connection) -> tuple[str, str]:
        found = deployment.find(conn)
        return migrate.current_revision(conn) or "", found.id if found else ""

    schema, mark = copies.read_copy(draft / DATABASE, look)
    files = sorted(path for path in draft.rglob("*") if path.is_file())
    made = Manifest(
        shunter=version("shunter"),
        schema=schema,
        deployment=mark,
        created_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        objects_elsewhere=elsewhere,
        files={path.relative_to(draft).as_posix(): manifest.entry_of(path) for path in files},
    )
    made.write(draft)
    return made


def _embedded(data: DataSettings) -> Path:
    database = copies.file_of(data.database_url)
    if database is None:
        raise Refused("the database is no SQLite file: back PostgreSQL up with pg_dump (see `operating/backup`)")
    if not database.is_file():
        raise Refused(f"there is no database at {database}")
    return database


def objects_folder(data: DataSettings) -> Path | None:
    """Where the objects lie on this machine; None: they are kept elsewhere."""
    filesystem, root = fsspec.core.url_to_fs(data.objects_url)
    protocols = (filesystem.protocol,) if isinstance(filesystem.protocol, str) else tuple(filesystem.protocol)
    if "file" not in protocols:
        return None
    folder = Path(root)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="shunter backup", description="Copy what a service keeps into a folder, while it runs."
    )
    parser.add_argument("folder", help="a new folder for the backup; it holds keys: keep it to yourself")
    parser.add_argument("--data-dir", help="the service's (default: $SHUNTER_DATA_DIR, .shunter, ~/.shunter)")
    return parser.parse_args(arguments)
