"""PostgreSQL is killed, restarted and stopped; workers stand still for longer than their leases; one of two dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from support.postgres_server import PostgresServer
from support.waiting import wait_until

from chaos import record
from chaos.judging import judged
from chaos.nights import at_night
from chaos.programs import DUO, SOLO, counting
from chaos.site import STEP_LEASE_S, Site, site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CLOUDS = {"sim": {"plugin": "simulated", "settings": {"boot_s": 0.2, "types": [SOLO, DUO]}}}
LINES = 40


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("databases") / "data", "deployed", clouds=CLOUDS) as played:
        with played.database() as database:
            record.begin(database)
        yield played


@pytest.fixture
def plane(deployed: Site) -> Iterator[Site]:
    yield deployed
    for role in (*deployed.apis, *deployed.workers):
        deployed.start(role)
    deployed.wait_until_it_works()


def killed(server: PostgresServer) -> None:
    server.kill()
    time.sleep(1)
    server.start()


def restarted(server: PostgresServer) -> None:
    server.stop()
    time.sleep(1)
    server.start()


def thrown_out(server: PostgresServer) -> None:
    server.kill_backend(Random(1))


def paused(server: PostgresServer) -> None:
    server.pause()
    time.sleep(STEP_LEASE_S + 1)
    server.resume()


@pytest.mark.parametrize("fault", [killed, *at_night(restarted, thrown_out, paused)], ids=lambda fault: fault.__name__)
def test_a_database_that_fails_stops_no_training_and_loses_nothing(fault, plane: Site, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]  # (PostgresServer) -> None
    assert plane.postgres is not None
    running = plane.submit(counting(tmp_path, f"running-{fault.__name__}", LINES))
    plane.wait_for(running, "running")
    queued = plane.submit(counting(tmp_path, f"queued-{fault.__name__}", 3))

    fault(plane.postgres)

    later = plane.submit(counting(tmp_path, f"later-{fault.__name__}", 3))
    for job_id in (running, queued, later):
        assert plane.wait_for(job_id, "succeeded", timeout_s=60)["generation"] == 1
    assert plane.lines_of(running) == [f"line 1 {number}" for number in range(LINES)]
    assert plane.deaths == []
    assert judged(plane, tmp_path) == []


def test_a_worker_group_that_stands_still_beyond_its_leases_is_replaced_and_writes_nothing_stale(
    plane: Site, tmp_path: Path
) -> None:
    running = plane.submit(counting(tmp_path, "beyond", LINES))
    plane.wait_for(running, "running")
    frozen = [plane.roles["worker"].pid, *plane.children_of("worker")]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)

    later = [plane.submit(counting(tmp_path, f"while-{number}", 3)) for number in range(3)]
    for job_id in (running, *later):
        plane.wait_for(job_id, "succeeded", timeout_s=60)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)

    wait_until(lambda: plane.children_of("worker"), description="it is back")
    plane.wait_for(plane.submit(counting(tmp_path, "once-more", 3)), "succeeded", timeout_s=60)
    assert judged(plane, tmp_path) == []


@pytest.mark.parametrize("role", [*at_night("api", "worker-2"), "api-2", "worker"])
def test_one_of_two_is_enough(role: str, plane: Site, tmp_path: Path) -> None:
    running = plane.submit(counting(tmp_path, f"running-{role}", 10))
    plane.wait_for(running, "running")

    plane.kill(role)

    later = plane.submit(counting(tmp_path, f"later-{role}", 3))
    for job_id in (running, later):
        assert plane.wait_for(job_id, "succeeded", timeout_s=60)["generation"] == 1
    assert judged(plane, tmp_path) == []
