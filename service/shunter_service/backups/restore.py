"""`python -m shunter_service restore FOLDER`: a data directory from a backup. The service must not run there."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from shunter_store.errors import UnusableDatabase
from shunter_store.installation.settings import DataSettings
from shunter_store.sql import copies

from shunter_service.backups import manifest
from shunter_service.backups.backup import OBJECTS, objects_folder
from shunter_service.backups.manifest import DATABASE, BadBackup, Manifest
from shunter_service.up.layout import default_data_dir
from shunter_service.up.lock import AlreadyUp, Lock

_DRAFT: Final = "restoring.db"
_OBJECTS: Final = f"{OBJECTS}/"
_SECRET: Final = 0o600


class Refused(Exception):
    """Nothing is restored; the text says why."""


def run(arguments: Sequence[str]) -> int:
    """Restore one backup; the exit code."""
    options = _parse(arguments)
    data_dir = Path(options.data_dir or default_data_dir()).expanduser().absolute()
    try:
        found = restore(Path(options.folder), data_dir)
    except (Refused, BadBackup, AlreadyUp, UnusableDatabase, OSError, ValidationError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{data_dir}: as of {found.created_at}, {len(found.files)} files")
    if found.objects_elsewhere:
        print(f"the objects were kept at {found.objects_elsewhere}; they have to be there", file=sys.stderr)
    print(
        "nodes that it does not know are only reported, since they may be of jobs that began after the backup;\n"
        "look with `shunter billing`, and let them be ended with `shunter reaping --confirm`",
        file=sys.stderr,
    )
    return 0


def restore(folder: Path, data_dir: Path) -> Manifest:
    """Make `data_dir` what the backup holds. The database comes last: until then a restore can be repeated.

    Raises:
        BadBackup: what lies in `folder` is no backup, is damaged, or is a newer Shunter's.
        Refused: `data_dir` holds a database already.
        AlreadyUp: a service runs there.
    """
    found = manifest.read(folder)
    if (data_dir / DATABASE).exists():
        raise Refused(f"{data_dir} holds a database already; move it away, or give another --data-dir")
    manifest.check(folder, found)
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = Lock(data_dir / "up.lock")
    try:
        _put_back(folder, found, data_dir)
    finally:
        lock.release()
    return found


def _put_back(folder: Path, found: Manifest, data_dir: Path) -> None:
    for path in found.files:
        if path != DATABASE and not path.startswith(_OBJECTS):
            _copy(folder / path, data_dir / path, secret=True)
    data = DataSettings(data_dir=data_dir)  # with the settings that were put back
    database, objects = copies.file_of(data.database_url), objects_folder(data)
    if database is None:
        raise Refused("the settings name a database that is no SQLite file; take `database_url` away first")
    if database.exists():
        raise Refused(f"there is a database at {database} already; move it away")
    for path in found.files:
        if path.startswith(_OBJECTS) and objects is not None:
            _copy(folder / path, objects / path.removeprefix(_OBJECTS), secret=False)
    draft = database.with_name(_DRAFT)
    draft.unlink(missing_ok=True)
    shutil.copyfile(folder / DATABASE, draft)
    copies.make_usable(draft, f"the database was restored from a backup of {found.created_at}")
    draft.rename(database)


def _copy(source: Path, target: Path, *, secret: bool) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.restoring")
    shutil.copyfile(source, draft)
    if secret:
        draft.chmod(_SECRET)
    draft.replace(target)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="shunter restore", description="Make a data directory from a backup.")
    parser.add_argument("folder", help="the backup")
    parser.add_argument("--data-dir", help="what to make (default: $SHUNTER_DATA_DIR, .shunter, ~/.shunter)")
    return parser.parse_args(arguments)
