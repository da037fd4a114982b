"""A budget on a cloud that bills, through real parts: it holds, the ranks save first, and every account agrees."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from shunter_providers.simulated.books import Books
from support.control_plane import ControlPlane, control_plane, plain
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

USD_PER_S = 1.0
"""So that the minute which a budget keeps for the stop is 60 USD."""
CLOUD = {
    "boot_s": 0.2,
    "types": [{"name": "dear", "usd_per_hour": 3600.0 * USD_PER_S, "cpu_slots": 1, "cpus": 1, "nodes_per_region": 2}],
}
SAVES = """
import pathlib, signal, sys, time
out = pathlib.Path(sys.argv[1])
def save(*_):
    folder = out / "checkpoint-7"
    folder.mkdir()
    (folder / "done").touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
print("runs", flush=True)
time.sleep(600)
"""


def spender(max_cost_usd: float) -> dict[str, Any]:
    """A program that costs 1 USD a second and saves when it is stopped."""
    document = plain(sys.executable, "-c", SAVES, "${checkpoint_dir}", limits={"max_cost_usd": max_cost_usd})
    document["workload"]["checkpoint"] = {"pattern": "checkpoint-*", "complete_file": "done"}
    return document


def billed_usd(plane: ControlPlane) -> float:
    """What the cloud says that all nodes cost."""
    with Books(plane.data_dir / "simulated" / "sim.sqlite").writing() as page:
        entries = page.everything()
    return sum(entry.cost_usd(entry.ends_at) for entry in entries)


def test_a_budget_ends_a_job_with_a_checkpoint_before_it_costs_more_and_every_account_agrees(tmp_path: Path) -> None:
    settings = {"SHUNTER_PROVIDERS": json.dumps({"sim": {"plugin": "simulated", "settings": CLOUD}})}
    with control_plane(tmp_path / "data", **settings) as plane:
        job_id = plane.submit(spender(max_cost_usd=75.0))
        wait_until(lambda: plane.lines(job_id), timeout_s=60, description="it runs")
        wait_until(lambda: plane.job(job_id)["state"] == "failed", timeout_s=120, description="its money is spent")
        wait_until(
            lambda: plane.http("GET", "/v1/nodes", params={"billing": "true"}).json()["confirmed"],
            timeout_s=60,
            description="the cloud was read",
        )

        job = plane.job(job_id)
        nodes = plane.http("GET", "/v1/nodes", params={"billing": "true"}).json()
        costs = plane.http("GET", "/v1/costs", params={"group_by": "job,provider"}).json()
        saved = plane.http("GET", f"/v1/jobs/{job_id}/checkpoints").json()["items"]
        billed = billed_usd(plane)

    assert job["reason"] == "budget_exhausted"
    assert 0 < billed <= 75.0
    assert len(saved) == 1, "the ranks saved before their node went"
    assert (nodes["items"], nodes["usd_per_hour"]) == ([], 0.0), "nothing is billing"
    assert [(group["by"]["job"], group["by"]["provider"]) for group in costs["groups"]] == [(job_id, "sim")]
    assert costs["total_usd"] == costs["groups"][0]["usd"] == job["cost"]["usd"]
    assert billed <= job["cost"]["usd"] <= billed + 30.0, "until the proof that it is gone a node counts"
