"""`python -m shunter_service migrate --to REVISION`: back to the schema of an older release, before it is installed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from shunter_store import migrate
from shunter_store.errors import UnusableDatabase
from shunter_store.installation.settings import DataSettings
from sqlalchemy.exc import SQLAlchemyError


def run(arguments: Sequence[str]) -> int:
    """Bring the database to a schema; the exit code."""
    options = _parse(arguments)
    try:
        data = DataSettings(data_dir=Path(options.data_dir)) if options.data_dir else DataSettings()
        if options.to == migrate.head_revision():
            migrate.upgrade(data.database_url)
        else:
            migrate.downgrade(data.database_url, options.to)
    except (UnusableDatabase, SQLAlchemyError, OSError, ValidationError, ValueError) as error:
        print(f"error: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    print(f"the database has schema {options.to}")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="shunter migrate",
        description="Bring the database to a schema: the newest, or that of an older release before it is installed. "
        "Stop every role first; going back, what the older schema has no place for is lost.",
    )
    parser.add_argument("--to", default=migrate.head_revision(), help="the schema (default: %(default)s, the newest)")
    parser.add_argument("--data-dir", help="the service's (default: $SHUNTER_DATA_DIR, .shunter, ~/.shunter)")
    return parser.parse_args(arguments)
