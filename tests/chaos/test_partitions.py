"""Parts that cannot reach each other: by lines with weather between them, and by a pulled cable."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.faulty_line import CLEAR, FAR, HALF_OPEN, RESET, SILENT, SLOW, Weather
from support.own_namespaces import FarNetwork, far_network, own_network
from support.waiting import wait_until

from chaos import record
from chaos.judging import judged
from chaos.nights import at_night
from chaos.programs import DUO, SOLO, counting
from chaos.site import STEP_LEASE_S, Site, site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CLOUDS = {"sim": {"plugin": "simulated", "settings": {"boot_s": 0.2, "types": [SOLO, DUO]}}}
A_CUT_S = 3.0


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Shared by the tests here, each of which leaves it clear."""
    with site(tmp_path_factory.mktemp("deployed") / "data", "deployed", clouds=CLOUDS) as played:
        with played.database() as database:
            record.begin(database)
        yield played


@pytest.fixture
def plane(deployed: Site) -> Iterator[Site]:
    yield deployed
    for line in deployed.wires.values():
        line.turn(CLEAR)
    deployed.wait_until_it_works()


@pytest.mark.parametrize("weather", [RESET, SILENT, *at_night(FAR, SLOW, HALF_OPEN)], ids=lambda weather: weather.name)
def test_a_training_whose_line_to_the_service_fails_goes_on_and_tells_everything_once(
    weather: Weather, plane: Site, tmp_path: Path
) -> None:
    job_id = plane.submit(counting(tmp_path, f"agents-{weather.name}", 60))
    plane.wait_for(job_id, "running")

    plane.wires["nodes-api"].turn(weather)
    time.sleep(A_CUT_S)
    plane.wires["nodes-api"].turn(CLEAR)

    job = plane.wait_for(job_id, "succeeded", timeout_s=60)
    assert job["generation"] == 1
    assert plane.lines_of(job_id) == [f"line 1 {number}" for number in range(60)]
    assert judged(plane, tmp_path) == []


@pytest.mark.parametrize("weather", [SILENT, *at_night(HALF_OPEN, RESET)], ids=lambda weather: weather.name)
def test_a_worker_group_without_its_database_is_replaced_by_the_other(
    weather: Weather, plane: Site, tmp_path: Path
) -> None:
    running = plane.submit(counting(tmp_path, f"before-{weather.name}", 20))
    plane.wait_for(running, "running")
    line = plane.wires["worker-sql"]

    line.turn(weather)
    later = plane.submit(counting(tmp_path, f"during-{weather.name}", 5))

    plane.wait_for(running, "succeeded", timeout_s=60)
    plane.wait_for(later, "succeeded", timeout_s=60)
    time.sleep(STEP_LEASE_S if weather is HALF_OPEN else 0.0)  # what it holds runs out, and then its writes arrive
    line.turn(CLEAR)
    assert plane.deaths == []
    assert judged(plane, tmp_path) == []


def test_jobs_move_on_while_nobody_reaches_the_broker(plane: Site, tmp_path: Path) -> None:
    plane.wires["workers-redis"].turn(SILENT)

    job_id = plane.submit(counting(tmp_path, "no-broker", 5))

    plane.wait_for(job_id, "succeeded", timeout_s=60)
    assert plane.deaths == []


def test_an_api_without_its_database_says_so_and_works_again_by_itself(plane: Site, tmp_path: Path) -> None:
    plane.wires["api-sql"].turn(RESET)
    refused = plane.http("GET", "/v1/jobs")

    plane.wires["api-sql"].turn(CLEAR)

    assert refused.status_code == 503
    assert refused.json()["type"].endswith("unavailable")
    assert plane.ask("GET", "/v1/jobs").status_code == 200
    plane.wait_for(plane.submit(counting(tmp_path, "after-a-cut", 5)), "succeeded", timeout_s=60)


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[tuple[Site, FarNetwork]]:
    """`worker-2` and the nodes that it starts are on the other side of a cable; `worker` does not run yet."""
    with ExitStack() as stack:
        stack.enter_context(own_network())
        network = stack.enter_context(far_network())
        played = stack.enter_context(
            site(tmp_path / "data", "deployed", clouds=CLOUDS, network=network, SHUNTER_TIMING__UNREACHABLE_AFTER_S="4")
        )
        with played.database() as database:
            record.begin(database)
        played.stop("worker")
        yield played, network


@pytest.mark.nightly
def test_a_pulled_cable_stops_no_training_and_the_workers_on_this_side_take_over(
    apart: tuple[Site, FarNetwork], tmp_path: Path
) -> None:
    plane, network = apart
    (tmp_path / "marks").mkdir()
    far = plane.submit(counting(tmp_path / "marks", "far", 400))
    plane.wait_for(far, "running")
    (agent,) = plane.agents().values()
    assert network.holds(agent.pid)
    (rank,) = plane.ranks()

    network.unplug()
    plane.start("worker")
    near = plane.submit(counting(tmp_path / "marks", "near", 5))

    plane.wait_for(near, "succeeded", timeout_s=60)
    wait_until(lambda: plane.job(far)["health"] == "unreachable", timeout_s=30, description="silence is noticed")
    assert plane.job(far)["state"] == "running"
    assert plane.ranks() == [rank], "the same process, untouched"
    network.plug_in()
    job = plane.wait_for(far, "succeeded", timeout_s=90)
    assert job["generation"] == 1, [(event["type"], event["data"]) for event in plane.events(far)]
    assert plane.lines_of(far) == [f"line 1 {number}" for number in range(400)]
    assert judged(plane, tmp_path / "marks") == []
