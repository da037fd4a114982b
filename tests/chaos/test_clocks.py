"""Clocks that are set by hours, of one process at a time: nothing that is counted in seconds may notice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from chaos import record
from chaos.programs import DUO, SOLO, counting
from chaos.site import STEP_LEASE_S, Site, site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CLOUDS = {"sim": {"plugin": "simulated", "settings": {"boot_s": 0.2, "types": [SOLO, DUO]}}}
AHEAD_S = 7 * 3600.0
BEHIND_S = -3 * 3600.0
LINES = 60


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Shared by the tests here, each of which sets the clocks back."""
    with site(tmp_path_factory.mktemp("clocks") / "data", "deployed", clouds=CLOUDS, clocks=True) as played:
        with played.database() as database:
            record.begin(database)
        yield played


@pytest.fixture
def plane(deployed: Site) -> Iterator[Site]:
    yield deployed
    for role in (*deployed.apis, *deployed.workers, "postgres"):
        deployed.set_clock(role, 0.0)


ALL_OF_A_KIND = [
    pytest.param(("api", "api-2"), marks=pytest.mark.nightly),
    pytest.param(("worker", "worker-2"), marks=pytest.mark.nightly),
]


def limited(marks: Path, name: str) -> dict[str, object]:
    """A job that would be stopped if the hours of a jump counted."""
    document = counting(marks, name, LINES)
    return {**document, "limits": {**document["limits"], "max_duration_s": 1800, "max_cost_usd": 0.1}}


def patient(marks: Path, name: str, lines: int) -> dict[str, object]:
    """A job that may wait for ever: by a clock that is set forward it waits for hours."""
    document = counting(marks, name, lines)
    return {**document, "limits": {**document["limits"], "max_queue_s": None}}


AHEAD = pytest.param(AHEAD_S, id="ahead")
BEHIND = pytest.param(BEHIND_S, id="behind")


def at_night(way: ParameterSet) -> ParameterSet:
    return pytest.param(*way.values, id=way.id, marks=pytest.mark.nightly)


@pytest.mark.parametrize("ahead_s", [AHEAD, at_night(BEHIND)])
@pytest.mark.parametrize("roles", [*ALL_OF_A_KIND, ("api", "worker")], ids="+".join)
def test_a_clock_of_the_service_that_is_set_stops_no_training(
    roles: tuple[str, ...], ahead_s: float, plane: Site, tmp_path: Path
) -> None:
    job_id = plane.submit(limited(tmp_path, f"{'-'.join(roles)}-{'ahead' if ahead_s > 0 else 'behind'}"))
    plane.wait_for(job_id, "running")

    for role in roles:
        plane.set_clock(role, ahead_s)

    job = plane.wait_for(job_id, "succeeded", timeout_s=60)
    assert job["generation"] == 1, [(event["type"], event["data"]) for event in plane.events(job_id)]
    assert plane.lines_of(job_id) == [f"line 1 {number}" for number in range(LINES)]
    later = plane.submit(counting(tmp_path, f"after-{'-'.join(roles)}-{ahead_s:.0f}", 3))
    plane.wait_for(later, "succeeded", timeout_s=60)


@pytest.mark.parametrize("ahead_s", [at_night(AHEAD), at_night(BEHIND)])
def test_a_clock_of_a_node_that_is_set_stops_no_training(ahead_s: float, plane: Site, tmp_path: Path) -> None:
    job_id = plane.submit(limited(tmp_path, f"node-{'ahead' if ahead_s > 0 else 'behind'}"))
    plane.wait_for(job_id, "running")
    (token,) = plane.agents()

    plane.set_agent_clock(token, ahead_s)

    job = plane.wait_for(job_id, "succeeded", timeout_s=60)
    assert job["generation"] == 1
    assert plane.lines_of(job_id) == [f"line 1 {number}" for number in range(LINES)]


@pytest.mark.parametrize("ahead_s", [at_night(AHEAD), BEHIND])
def test_leases_survive_a_clock_of_the_database_that_is_set(ahead_s: float, plane: Site, tmp_path: Path) -> None:
    """Leases are counted by its clock. Set back it holds nothing up, and what a jump ahead leaves behind
    stands in nobody's way once it is right again."""
    before = plane.submit(patient(tmp_path, f"before-{ahead_s:.0f}", 20))
    plane.wait_for(before, "running")

    plane.set_clock("postgres", ahead_s)
    during = plane.submit(patient(tmp_path, f"during-{ahead_s:.0f}", 3))
    time.sleep(STEP_LEASE_S)
    if ahead_s < 0:
        plane.wait_for(during, "succeeded", timeout_s=90)
    plane.set_clock("postgres", 0.0)

    later = plane.submit(counting(tmp_path, f"later-{ahead_s:.0f}", 3))
    for job_id in (before, during, later):
        assert plane.wait_for(job_id, "succeeded", timeout_s=90)["generation"] == 1
