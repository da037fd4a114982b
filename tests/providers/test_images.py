"""Which nodes run a job's own image, and who runs it there."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest
from shunter_providers.contract import Capabilities

SHIPPED = sorted(point.name for point in entry_points(group="shunter.providers"))


@pytest.mark.parametrize("name", SHIPPED)
def test_containers_boot_the_image_and_rented_machines_and_own_hosts_run_it_under_docker(name: str) -> None:
    (point,) = entry_points(group="shunter.providers", name=name)
    declared: Capabilities = point.load().capabilities
    played = name in ("local", "simulated")

    runs, by_docker = declared.runs_images, declared.runs_images_by_docker

    assert runs is not played
    assert by_docker is (runs and "container" not in declared.kinds)
