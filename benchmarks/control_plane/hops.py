"""Where the time of a trivial job on `local` goes: from POST to the rank's first line, and from its last to the end.

    .venv/bin/python benchmarks/control_plane/hops.py [--rounds 15]

Each line is the median, and the smallest and largest, in seconds since the POST began (or since the rank's own end).
The rank is a Python program that writes down when it starts, so its interpreter's start-up is part of `rank started`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from running import service

PROGRAM = """
import sys, time
began = time.time()
time.sleep(1.0)
open(sys.argv[1], "w").write(f"{began} {time.time()}")
"""
DOCUMENT = {"version": "1", "name": "hops", "resources": {"cpu_processes": 1}}
HOPS = (
    "POST answered",
    "planned and intended",
    "agent up",
    "its first exchange",
    "rank started",
    "seen running",
    "rank's end to outcome",
    "rank's end to nodes gone",
)


def measure(http: httpx.Client, folder: Path) -> dict[str, float]:
    """One job."""
    marks = folder / "marks"
    command = [sys.executable, "-c", PROGRAM, str(marks)]
    began = time.time()
    answer = http.post("/v1/jobs", json={**DOCUMENT, "workload": _plain(command)}).raise_for_status()
    answered = time.time()
    here = f"/v1/jobs/{answer.json()['id']}"
    job: dict[str, Any] = {}
    while job.get("state") not in ("succeeded", "failed", "cancelled"):
        time.sleep(0.1)
        job = http.get(here).raise_for_status().json()
    assert job["state"] == "succeeded", job
    events = http.get(f"{here}/events", params={"limit": 500}).raise_for_status().json()["items"]
    boot = next(event for event in events if event["type"] == "node.boot")
    moves = {move["to"]: _seconds(move["at"]) for move in job["transitions"]}
    rank_began, rank_ended = map(float, marks.read_text().split())
    moments = (
        answered,
        _seconds(job["nodes"][0]["created_at"]),
        boot["data"]["node_at"],
        _seconds(boot["at"]),
        rank_began,
        moves["running"],
    )
    after = (_seconds(job["finished_at"]) - rank_ended, moves["succeeded"] - rank_ended)
    return dict(zip(HOPS, (*(moment - began for moment in moments), *after), strict=True))


def _plain(command: list[str]) -> dict[str, Any]:
    return {"kind": "script", "launcher": "plain", "command": command}


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as scratch, service(Path(scratch) / "data") as running:
        headers = {"Authorization": f"Bearer {running.api_key}"}
        with httpx.Client(base_url=running.url, headers=headers, trust_env=False, timeout=30) as http:
            measure(http, Path(scratch))  # the first one pays for caches
            found = [measure(http, Path(scratch)) for _ in range(rounds)]
    for hop in HOPS:
        figures = [one[hop] for one in found]
        print(f"{hop:26} {statistics.median(figures):6.3f}   [{min(figures):.3f} to {max(figures):.3f}]")


if __name__ == "__main__":
    main()
