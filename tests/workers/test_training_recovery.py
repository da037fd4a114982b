"""A declared training through the whole control plane: a killed rank costs the steps since the last checkpoint only."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from support.control_plane import ControlPlane
from support.documents import tiny_lm
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.trainer, pytest.mark.timeout(240)]


def training(steps: int) -> dict[str, Any]:
    """Small enough to be quick, long enough to be killed in the middle."""
    document = tiny_lm()
    document["workload"] |= {
        "duration": {"steps": steps},
        "checkpoint": {"every_steps": 10, "keep": 2},
    }
    document["workload"].pop("evaluation", None)
    return document


def committed(plane: ControlPlane, job_id: str) -> list[int]:
    return [event["data"]["step"] for event in plane.events(job_id) if event["type"] == "checkpoint.committed"]


def test_a_killed_rank_resumes_from_the_last_committed_checkpoint(own_plane: ControlPlane) -> None:
    job_id = own_plane.submit(training(200))
    wait_until(lambda: committed(own_plane, job_id), timeout_s=90, description="a checkpoint is committed")

    os.kill(own_plane.ranks()[-1], signal.SIGKILL)

    wait_until(
        lambda: own_plane.job(job_id)["generation"] == 2, timeout_s=60, description="generation 2 is told to run"
    )
    resumed_from = committed(own_plane, job_id)[-1]
    job = own_plane.wait_for(job_id, "succeeded", timeout_s=150)
    series = own_plane.http("GET", f"/v1/jobs/{job_id}/metrics").json()
    assert job["progress"]["step"] == 200
    assert resumed_from >= 10
    assert series["series"], "metrics of both generations are one curve"
    assert committed(own_plane, job_id)[-1] == 200
    assert len(job["nodes"]) == 1
