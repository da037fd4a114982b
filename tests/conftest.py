"""For every test: no other package may load itself into the test process."""

from __future__ import annotations

import pytest
import pytest_randomly

# DeepSpeed registers a seeder with pytest-randomly, which would import torch (200 MB, 2 s) before the first test and
# hide what our own modules import. Tests that need seeded torch seed it themselves.
pytest_randomly.entrypoint_reseeds = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Nightly tests run only where they are asked for (`-m nightly`), not with all that is "not slow"."""
    if "nightly" in config.option.markexpr:
        return
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=nightly)
    items[:] = [item for item in items if item not in nightly]
