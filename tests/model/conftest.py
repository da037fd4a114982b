"""A world of its own for each directed test; whatever it leaves undone is brought to its end and checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.databases import sqlite_template

from model.world import World

__all__ = ["sqlite_template"]


@pytest.fixture
def world(sqlite_template: Path) -> Iterator[World]:
    """Empty. After the test every promise has to hold in the end."""
    made = World(sqlite_template)
    try:
        yield made
        made.settle()
    finally:
        made.close()
