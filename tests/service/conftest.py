from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.databases import database_url, postgres_database, sqlite_template, sqlite_url
from support.service_app import App, running_app

__all__ = ["database_url", "postgres_database", "sqlite_template", "sqlite_url"]


@pytest.fixture
async def app(tmp_path: Path, database_url: str) -> AsyncIterator[App]:
    """The API over each kind of database in turn."""
    async with running_app(tmp_path, database_url) as running:
        yield running


@pytest.fixture
async def lite(tmp_path: Path, sqlite_url: str) -> AsyncIterator[App]:
    """The API over SQLite, for what no database has a part in."""
    async with running_app(tmp_path, sqlite_url) as running:
        yield running
