"""For every test: no other package may load itself into the test process."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_randomly

# DeepSpeed registers a seeder with pytest-randomly, which would import torch (200 MB, 2 s) before the first test and
# hide what our own modules import. Tests that need seeded torch seed it themselves.
pytest_randomly.entrypoint_reseeds = []


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Nightly tests run only where they are asked for (`-m nightly`), not with all that is "not slow". The files whose
    tests may take longest come first, so that no process has one of them left when the others are done."""
    if "nightly" not in config.option.markexpr:
        nightly = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if item not in nightly]
    allowed_s: dict[Path, float] = {}
    for item in items:
        allowed_s[item.path] = max(allowed_s.get(item.path, 0.0), _allowed_s(item))
    items.sort(key=lambda item: -allowed_s[item.path])


def _allowed_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None and marker.args else 0.0
