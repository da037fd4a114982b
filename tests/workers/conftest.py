"""One control plane for the tests of a module that leave it as they found it; those that kill parts make their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.control_plane import ControlPlane, control_plane
from support.databases import database, database_url, postgres_database, sqlite_template

__all__ = ["database", "database_url", "postgres_database", "sqlite_template"]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Shared by a module. Two CPU slots."""
    with control_plane(tmp_path_factory.mktemp("plane") / "data") as running:
        yield running


@pytest.fixture
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The test's own, to kill parts of."""
    with control_plane(tmp_path_factory.mktemp("own") / "data") as running:
        yield running
