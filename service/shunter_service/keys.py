"""`python -m shunter_service keys list | create | revoke`: who may use the API. The service need not run."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from shunter_store import migrate
from shunter_store.errors import UnusableDatabase
from shunter_store.installation import api_keys
from shunter_store.installation.api_keys import ListedKey
from shunter_store.installation.settings import DataSettings
from shunter_store.sql.database import Database
from sqlalchemy import Connection
from sqlalchemy.exc import InterfaceError, OperationalError

from shunter_service.prepare import KEY_NAME, SCOPES
from shunter_service.up import secret_files

_SECRET_BYTES: Final = 32
_LONGEST_NAME: Final = 100


class Refused(Exception):
    """What was asked for cannot be done; the text says why."""


def run(arguments: Sequence[str]) -> int:
    """One command on the keys of a data directory's database; the exit code."""
    options = _parse(arguments)
    try:
        data = DataSettings(data_dir=Path(options.data_dir)) if options.data_dir else DataSettings()
        db = Database.connect(data.database_url, readers=1)
        try:
            if db.read(migrate.current_revision) != migrate.head_revision():
                raise Refused("the database is not up to date; start `shunter up`, or prepare it, first")
            lines = _COMMANDS[options.command](db, data.data_dir / "api-key", options)
        finally:
            db.close()
    except (OperationalError, InterfaceError) as error:
        print(f"error: the database cannot be used: {str(error.orig).splitlines()[0]}", file=sys.stderr)
        return 2
    except (Refused, UnusableDatabase, OSError, ValidationError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


def _list(db: Database, file: Path, options: argparse.Namespace) -> list[str]:
    keys, here = db.read(api_keys.list_all), _id_in(file)
    if options.json:
        return [json.dumps([{**_as_data(key), "in_data_dir": key.id == here} for key in keys])]
    rows = [("ID", "NAME", "PROJECT", "SCOPES", "CREATED", "")]
    for key in keys:
        created = f"{key.created_at:%Y-%m-%d %H:%M:%S}"
        mark = f"in {file}" if key.id == here else ""
        rows.append((key.id, key.name, key.project, ",".join(key.scopes), created, mark))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _create(db: Database, file: Path, options: argparse.Namespace) -> list[str]:
    secret = f"shk_{secrets.token_urlsafe(_SECRET_BYTES)}"
    scopes = options.scope or ["jobs:read", "jobs:write"]

    def create(conn: Connection) -> None:
        if any(key.name == options.name for key in api_keys.list_all(conn)):
            raise Refused(f"there is a key `{options.name}` already; give another name, or revoke that one first")
        api_keys.add(conn, secret, options.name, scopes, options.project)

    db.write(create)
    if options.json:
        return [json.dumps({"id": api_keys.id_of(secret), "name": options.name, "secret": secret})]
    print("this is shown once; only its hash is kept:", file=sys.stderr)
    return [secret]


def _revoke(db: Database, file: Path, options: argparse.Namespace) -> list[str]:
    here = _id_in(file)

    def revoke(conn: Connection) -> str:
        key = _the_one(api_keys.list_all(conn), options.key)
        if key.id == here:  # before it goes: a crash in between leaves two good keys, not none
            api_keys.add(conn, _new_file(file), KEY_NAME, SCOPES)
        api_keys.revoke(conn, key.id)
        return key.id

    revoked = db.write(revoke)
    if options.json:
        return [json.dumps({"revoked": revoked})]
    also = [f"{file} holds a new key now"] if revoked == here else []
    return [f"{revoked} revoked; API processes that know it let it in for a few seconds more", *also]


def _the_one(keys: Sequence[ListedKey], named: str) -> ListedKey:
    found = [key for key in keys if named in (key.id, key.name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise Refused(f"{len(found)} keys have the name `{named}`; say which: {', '.join(key.id for key in found)}")
    raise Refused(f"there is no key `{named}`; `shunter keys list` shows them")


def _new_file(file: Path) -> str:
    """A new secret in the data directory's file."""
    file.unlink()
    secret_files.ensure(file, prefix="shk_")
    return file.read_text().strip()


def _id_in(file: Path) -> str | None:
    return api_keys.id_of(file.read_text().strip()) if file.exists() else None


def _as_data(key: ListedKey) -> dict[str, object]:
    return {
        "id": key.id,
        "name": key.name,
        "project": key.project,
        "scopes": list(key.scopes),
        "created_at": key.created_at.isoformat(),
    }


_COMMANDS: Final[dict[str, Callable[[Database, Path, argparse.Namespace], list[str]]]] = {
    "list": _list,
    "create": _create,
    "revoke": _revoke,
}


def _name(text: str) -> str:
    if text.isprintable() and 1 <= len(text.strip()) <= _LONGEST_NAME:
        return text.strip()
    raise argparse.ArgumentTypeError(f"{text!r} is no name: 1 to {_LONGEST_NAME} letters that can be printed")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="shunter keys", description="List, create and revoke the keys that open the API."
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--data-dir", help="the service's (default: $SHUNTER_DATA_DIR, .shunter, ~/.shunter)")
    common.add_argument("--json", action="store_true", help="print JSON, for programs")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", parents=[common], help="show every key, without its secret")
    create = commands.add_parser("create", parents=[common], help="make a key and print its secret, once")
    create.add_argument("name", type=_name, help="who it is for; stands in the jobs that it makes")
    create.add_argument(
        "--scope", action="append", choices=sorted(api_keys.SCOPES), help="repeatable (default: jobs:read, jobs:write)"
    )
    create.add_argument("--project", default="default", help="whose jobs it sees (default: %(default)s)")
    revoke = commands.add_parser("revoke", parents=[common], help="let a key in no more")
    revoke.add_argument("key", help="its id, or its name")
    return parser.parse_args(arguments)
