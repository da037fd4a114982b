"""The receipt of a training on a cloud that bills, through real parts, with a rank that is killed on the way."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.control_plane import ControlPlane, control_plane
from support.documents import tiny_lm
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.trainer, pytest.mark.timeout(300)]

CLOUD = {
    "boot_s": 0.5,
    "types": [{"name": "small", "usd_per_hour": 36.0, "cpu_slots": 2, "cpus": 2, "nodes_per_region": 2}],
}


def training() -> dict[str, Any]:
    document = tiny_lm()
    document["workload"] |= {"duration": {"steps": 40}, "checkpoint": {"every_steps": 10, "keep": 2}}
    document["workload"].pop("evaluation", None)
    return document


def steps(plane: ControlPlane, job_id: str) -> int:
    return int((plane.job(job_id).get("progress") or {}).get("step", 0))


def test_the_receipt_of_a_recovered_training_names_every_cause_and_adds_up(tmp_path: Path) -> None:
    settings = {"SHUNTER_PROVIDERS": json.dumps({"sim": {"plugin": "simulated", "settings": CLOUD}})}
    with control_plane(tmp_path / "data", **settings) as plane:
        job_id = plane.submit(training())
        wait_until(lambda: steps(plane, job_id) > 14, timeout_s=120, description="it is well past a checkpoint")
        os.kill(plane.ranks()[-1], signal.SIGKILL)
        job = plane.wait_for(job_id, "succeeded", timeout_s=180)
        found = plane.http("GET", f"/v1/jobs/{job_id}/receipt").json()

    causes = {one["cause"]: one["usd"] for one in found["causes"]}
    assert found["final"]
    assert found["usd"] == job["cost"]["usd"] > 0
    assert round(sum(causes.values()), 6) == found["usd"]
    assert round(sum(node["usd"] for node in found["nodes"]), 6) == found["usd"]
    assert all(usd > 0 for usd in causes.values()), causes
    assert (found["steps"], job["generation"]) == (40, 2)
    assert found["tokens"] > 0
    assert found["usd_per_million_tokens"] == pytest.approx(found["usd"] / found["tokens"] * 1e6)
    assert found["usd_per_hour"] == found["predicted"]["usd_per_hour"] == 36.0
    assert found["predicted"]["usd"] > 0
