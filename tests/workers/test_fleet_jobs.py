"""Jobs whose agents a fleet plays, through the whole control plane: over real HTTP, with its faults on."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from shunter_providers.simulated.books import Books
from support.control_plane import ControlPlane, control_plane
from support.documents import changed, tiny_lm
from support.fleets import end_fleets
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TYPES = [{"name": "cpu-2", "usd_per_hour": 3600.0, "cpu_slots": 2}]
MANNER = {"prepare_s": 0.1, "stop_s": 0.1, "step_s": 0.2, "late": 0.05, "late_s": 0.2, "lost": 0.1, "duplicated": 0.1}
SIMULATED = {
    "sim": {"plugin": "simulated", "settings": {"nodes": "fleet", "boot_s": 0.2, "types": TYPES, "fleet": MANNER}}
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(
        tmp_path_factory.mktemp("fleet") / "data", SHUNTER_PROVIDERS=json.dumps(SIMULATED), SHUNTER_PACE__QUIET_S="1"
    ) as running:
        yield running


def a_training(**variables: str) -> dict[str, Any]:
    return changed(tiny_lm(), {"environment": {"variables": variables}})


def states(plane: ControlPlane, jobs: list[str]) -> Counter[str]:
    return Counter(plane.job(job_id)["state"] for job_id in jobs)


def test_played_jobs_live_their_whole_life_and_leave_no_node(plane: ControlPlane) -> None:
    jobs = [plane.submit(a_training(SIMULATED_RUN_S="2")) for _ in range(10)]
    failing = plane.submit(a_training(SIMULATED_RUN_S="1", SIMULATED_FAILS="1"))

    ended = [plane.wait_for(job_id, "succeeded", timeout_s=90) for job_id in jobs]
    failed = plane.wait_for(failing, "failed", timeout_s=90)

    assert {job["reason"] for job in ended} == {"done"}
    assert (failed["reason"], failed["message"]) == ("user_error", "it was played to fail")
    assert all(job["node_recoveries"] == 0 for job in ended if "node_recoveries" in job)
    steps = plane.http("GET", f"/v1/jobs/{jobs[0]}/metrics").json()
    assert "loss" in json.dumps(steps)
    assert plane.lines(jobs[0])[0] == "step 0 of a played training"
    assert plane.http("GET", f"/v1/jobs/{jobs[0]}/checkpoints").json()["items"]
    with Books(plane.data_dir / "simulated" / "sim.sqlite").writing() as page:
        assert page.living(time.time()) == []


def test_played_jobs_are_cancelled_and_untouched_ones_cost_neither_step_nor_message(plane: ControlPlane) -> None:
    jobs = [plane.submit(a_training()) for _ in range(6)]
    wait_until(lambda: states(plane, jobs)["running"] == 6, timeout_s=90, description="all run")

    with plane.database() as database:
        wait_until(lambda: quiet_for(plane, 3.0), timeout_s=60, description="nobody steps")
        before = counts(plane)
        heard = database.read(lambda conn: conn.exec_driver_sql("SELECT max(last_sync_at) FROM nodes").scalar_one())
        wait_until(
            lambda: (
                database.read(
                    lambda conn: conn.exec_driver_sql(
                        "SELECT min(last_sync_at) FROM nodes WHERE state = 'ready'"
                    ).scalar_one()
                )
                > heard + 3
            ),
            timeout_s=60,
            description="all were heard again and again",
        )
        after = counts(plane)
    for job_id in jobs:
        plane.cancel(job_id)
    wait_until(lambda: states(plane, jobs)["cancelled"] == 6, timeout_s=90, description="all are cancelled")

    assert after == before


def test_a_fleet_that_is_killed_disturbs_no_job(plane: ControlPlane) -> None:
    jobs = [plane.submit(a_training(SIMULATED_RUN_S="8")) for _ in range(4)]
    wait_until(lambda: all(has_run(plane, job_id) for job_id in jobs), timeout_s=90, description="all run")

    end_fleets(plane.data_dir)  # on a slow machine some are at their end by now

    ended = [plane.wait_for(job_id, "succeeded", timeout_s=90) for job_id in jobs]
    assert [len({node["token"] for node in job["nodes"]}) for job in ended] == [1, 1, 1, 1]
    assert all("recovering" not in [move["to"] for move in job["transitions"]] for job in ended)


def has_run(plane: ControlPlane, job_id: str) -> bool:
    return any(move["to"] == "running" for move in plane.job(job_id)["transitions"])


def quiet_for(plane: ControlPlane, seconds: float) -> bool:
    before = counts(plane)
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, timeout_s=seconds + 5, description="some time has passed")
    return bool(counts(plane) == before)


def counts(plane: ControlPlane) -> Any:
    """Claims and messages so far."""
    with plane.database() as database:
        return database.read(
            lambda conn: (
                conn.exec_driver_sql("SELECT sum(fence) FROM job_due").scalar_one(),
                conn.exec_driver_sql("SELECT max(id) FROM outbox").scalar_one(),
                conn.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'").scalar_one_or_none(),
            )
        )
