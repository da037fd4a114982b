"""A cap that is too small is foretold while the job runs, and one PATCH lets it finish: real parts that bill."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.control_plane import ControlPlane, control_plane, plain
from support.waiting import wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]

CLOUD = {
    "boot_s": 0.2,
    "types": [{"name": "dear", "usd_per_hour": 360.0, "cpu_slots": 1, "cpus": 1, "nodes_per_region": 2}],
}
"""10 cents a second; the minute that a budget keeps for the stop is 6 USD."""
TRAINS = """
import json, os, pathlib, sys, time
go = pathlib.Path(sys.argv[1])
with open(os.environ["SHUNTER_METRICS_FILE"], "a") as file:
    step = 20
    while not go.exists():
        step = min(step + 1, 9_000)
        print(json.dumps({"step": step, "loss": 1.0, "total_steps": 10_000, "eta_s": 600.0}), file=file, flush=True)
        time.sleep(0.2)
"""


def told(plane: ControlPlane, job_id: str) -> list[dict[str, Any]]:
    return [event["data"] for event in plane.events(job_id) if event["type"] == "job.cap_forecast"]


def test_a_cap_that_is_too_small_is_foretold_once_and_one_patch_raises_it(tmp_path: Path) -> None:
    go = tmp_path / "go"
    settings = {"SHUNTER_PROVIDERS": json.dumps({"sim": {"plugin": "simulated", "settings": CLOUD}})}
    with control_plane(tmp_path / "data", **settings) as plane:
        job_id = plane.submit(plain(sys.executable, "-c", TRAINS, str(go), limits={"max_cost_usd": 40.0}))
        wait_until(lambda: told(plane, job_id), timeout_s=90, description="it is foretold")
        (first,) = told(plane, job_id)
        shown = plane.job(job_id)["cost"]["forecast"]
        body = {"limits": {"max_cost_usd": first["max_cost_usd"] + first["usd_above_cap"] + 60.0}}
        answer = plane.http("PATCH", f"/v1/jobs/{job_id}", json=body, headers={"If-Match": "*"})
        wait_until(lambda: len(told(plane, job_id)) == 2, timeout_s=60, description="it is taken back")
        go.touch()
        plane.wait_for(job_id, "succeeded", timeout_s=60)
        both = told(plane, job_id)

    assert answer.status_code == 200
    assert [one["cap_comes_first"] for one in both] == [True, False]
    assert 20 < first["cap_at_step"] < 10_000
    assert shown["cap_at_step"] is not None
    assert "USD more finishes" in first["message"]
    assert "suffices now" in both[1]["message"]
