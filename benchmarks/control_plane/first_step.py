"""Submit → first training step on `local`, against bare `torchrun` of an equivalent script, interleaved in one run.

Both train the same-sized model under DDP on two CPU processes. The clock starts when the POST is sent (or `torchrun` is
started) and stops when rank 0 has finished its first step: in the job's metrics by the node's own clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from running import Running, service

_EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny-lm-ddp.json"
_BARE = Path(__file__).with_name("bare_ddp.py")


def main() -> None:
    """Interleave the two and print medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ours, bare = [], []
    with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder, service(Path(folder)) as running:
        for number in range(options.rounds):
            bare.append(bare_first_step_s(Path(folder)))
            parts = our_first_step_s(running)
            ours.append(parts["first step"])
            print(f"round {number + 1}: torchrun {bare[-1]:.2f} s; ours", json.dumps(parts), flush=True)
    print(f"torchrun median {statistics.median(bare):.2f} s ({min(bare):.2f}-{max(bare):.2f})")
    print(f"ours     median {statistics.median(ours):.2f} s ({min(ours):.2f}-{max(ours):.2f})")
    print(f"ratio ours / torchrun {statistics.median(ours) / statistics.median(bare):.2f}")


def our_first_step_s(running: Running) -> dict[str, float]:
    """POST a one-step document, follow it to its end; seconds from the POST to each event and to the first step."""
    document = json.loads(_EXAMPLE.read_text())
    workload = document["workload"]
    workload["duration"] = {"steps": 1}
    for part in ("evaluation", "schedule", "checkpoint"):
        workload.pop(part, None)
    with httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer {running.api_key}"}) as client:
        began = time.time()
        job = client.post("/v1/jobs", json=document).raise_for_status().json()
        path = f"/v1/jobs/{job['id']}"
        while (job := client.get(path).json())["state"] not in ("succeeded", "failed", "cancelled"):
            time.sleep(0.1)
        if job["state"] != "succeeded":
            raise RuntimeError(f"the job {job['state']}: {job['message']}")
        events = client.get(f"{path}/events", params={"limit": 200}).json()["items"]
        first = first_point_at(client.get(f"{path}/metrics").json())
    parts = {_name(event): round(_seconds(event["at"]) - began, 2) for event in events if event["type"] == "job.state"}
    return {**parts, "first step": round(first - began, 2)}


def first_point_at(metrics: dict[str, Any]) -> float:
    """When rank 0 finished its first step, by the node's clock (epoch seconds)."""
    return float(min(time_s for series in metrics["series"] for time_s in series["times_s"]))


def bare_first_step_s(folder: Path) -> float:
    """Seconds from starting `torchrun` to the end of the first step of an equivalent script."""
    mark = folder / "first-step"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "FIRST_STEP_FILE": str(mark)}
    began = time.time()
    argv = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", str(_BARE)]
    subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return float(mark.read_text()) - began


def _name(event: dict[str, Any]) -> str:
    return str(event["data"]["to"])


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


if __name__ == "__main__":
    main()
