"""`python -m shunter_service prepare`: migrations and the first key, before the roles start. Safe to repeat."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from shunter_store import migrate
from shunter_store.errors import UnusableDatabase
from shunter_store.installation import api_keys, deployment
from shunter_store.installation.exit_codes import UNUSABLE, WRONG_SETTINGS
from shunter_store.installation.settings import DataSettings
from shunter_store.sql.database import Database
from sqlalchemy import Connection

from shunter_service.settings import BadSettings, load_settings, unknown_settings
from shunter_service.up import secret_files

KEY_NAME = "local"
SCOPES = ("admin", "jobs:read", "jobs:write")


def run(arguments: Sequence[str]) -> int:
    """Bring the database up to date and let the key of the data directory in; the exit code."""
    del arguments  # everything it needs is in the settings
    try:
        prepare(load_settings()[0])
        for text in unknown_settings():
            print(text, file=sys.stderr)
    except BadSettings as error:
        print(error, file=sys.stderr)
        return WRONG_SETTINGS
    except (UnusableDatabase, OSError) as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    return 0


def prepare(data: DataSettings) -> str:
    """The secret of the data directory's own key, good from now on."""
    key_file = data.data_dir / "api-key"
    data.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret_files.ensure(key_file, prefix="shk_")
    secret = key_file.read_text().strip()
    migrate.upgrade(data.database_url)
    db = Database.connect(data.database_url, readers=1)

    def write(conn: Connection) -> None:
        deployment.get_or_create(conn)
        api_keys.add(conn, secret, KEY_NAME, SCOPES)

    try:
        db.write(write)
    finally:
        db.close()
    return secret
