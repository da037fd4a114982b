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
    job_id = own_plane.submit(training(60))
    wait_until(lambda: committed(own_plane, job_id), timeout_s=90, description="a checkpoint is committed")

    os.kill(own_plane.ranks()[-1], signal.SIGKILL)

    job = own_plane.wait_for(job_id, "succeeded", timeout_s=150)
    (resumed,) = [event["data"] for event in own_plane.events(job_id) if _is_resume(event)]
    assert resumed["generation"] == 2, "it went on, it did not begin anew"
    assert (job["generation"], job["progress"]["step"]) == (2, 60)
    assert committed(own_plane, job_id)[-1] == 60
    assert len(job["nodes"]) == 1


def _is_resume(event: dict[str, Any]) -> bool:
    data: dict[str, Any] = event["data"]
    return event["type"] == "node.prepare" and (data["part"], data["status"]) == ("resume", "done")
