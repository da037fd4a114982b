"""Hosts of their own for tests of several nodes, and a control plane that uses them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.hosts import Pool, make_pool


@pytest.fixture(scope="module")
def four_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Shared by a module; each with a small disk for nodes."""
    with make_pool(tmp_path_factory.mktemp("hosts"), 4, disk_mib=400) as made:
        yield made
