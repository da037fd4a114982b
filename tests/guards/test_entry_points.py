"""Everything that the distribution promises by name can be loaded."""

from importlib.metadata import EntryPoint, distribution

import pytest

OURS = list(distribution("shunter").entry_points)


def test_the_command_and_the_local_provider_are_published() -> None:
    published = {(point.group, point.name) for point in OURS}

    assert {("console_scripts", "shunter"), ("shunter.providers", "local")} <= published


@pytest.mark.parametrize("point", OURS, ids=lambda point: f"{point.group}-{point.name}")
def test_an_entry_point_loads(point: EntryPoint) -> None:
    loaded = point.load()

    assert callable(loaded) or point.group == "pytest11"  # a pytest plugin is a module
