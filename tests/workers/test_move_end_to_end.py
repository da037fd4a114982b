"""A move through real API, workers, agents and ranks: the same job goes on under another strategy, on other ranks."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.control_plane import ControlPlane, plain
from support.documents import changed, tiny_lm
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

STEPS = 400
COUNTS = """
import os, pathlib, signal, sys, time
out, resume = pathlib.Path(sys.argv[1]), sys.argv[2:]
count = int((pathlib.Path(resume[0]) / "count").read_text()) if resume else 0
def save(*_):
    folder = out / f"checkpoint-{count}"
    folder.mkdir()
    (folder / "count").write_text(str(count))
    (folder / "done").touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
print("begins at", count, flush=True)
while count < 10_000:
    count += 1
    time.sleep(0.02)
"""


def counter() -> dict[str, Any]:
    """A program that counts, saves where it is when it is stopped, and goes on from there."""
    document = plain(sys.executable, "-c", COUNTS, "${checkpoint_dir}")
    document["workload"] |= {
        "resume_arguments": ["${latest_checkpoint}"],
        "checkpoint": {"pattern": "checkpoint-*", "complete_file": "done"},
    }
    return document


def training(ranks: int) -> dict[str, Any]:
    """Saves only when it is stopped, and at the end."""
    document = changed(tiny_lm(), {"resources": {"cpu_processes": ranks}, "workload.evaluation": None})
    document["workload"]["model"] |= {"layers": 1, "hidden": 32, "heads": 2, "ffn": 64, "context": 32}
    document["workload"]["data"]["sequence_length"] = 32
    document["workload"] |= {"duration": {"steps": STEPS}, "checkpoint": {"every_s": 3600, "keep": 3}}
    document["workload"]["log_every_steps"] = 10
    document["workload"].pop("evaluation")
    return document


def move(plane: ControlPlane, job_id: str, **parts: Any) -> dict[str, Any]:
    answer = plane.http("POST", f"/v1/jobs/{job_id}/move", json=parts)
    assert answer.status_code == 202, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def told(plane: ControlPlane, job_id: str) -> list[str]:
    return [event["type"] for event in plane.events(job_id)]


def losses(plane: ControlPlane, job_id: str) -> dict[int, float]:
    found = plane.http("GET", f"/v1/jobs/{job_id}/metrics", params={"name": "loss"}).json()["series"]
    return {int(step): float(value) for one in found for step, value in zip(one["steps"], one["values"], strict=True)}


@contextmanager
def held(pids: list[int]) -> Iterator[None]:
    """Nothing is taken from the queue meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_program_that_moves_goes_on_where_it_was_as_the_same_job(plane: ControlPlane) -> None:
    job_id = plane.submit(counter())
    wait_until(lambda: plane.lines(job_id), description="it counts")
    plane.wait_for(job_id, "running")

    move(plane, job_id, placement={"objective": "time"})
    wait_until(lambda: len(plane.lines(job_id)) == 2, timeout_s=60, description="it counts on")
    running = plane.wait_for(job_id, "running", timeout_s=30)

    first, second = plane.lines(job_id)
    reached = int(second.removeprefix("begins at "))
    assert (first, reached > 0) == ("begins at 0", True)
    assert [(one["generation"], one["how"], one["document"]) for one in running["attempts"]] == [
        (1, "moved", 1),
        (2, "running", 2),
    ]
    assert [node["state"] for node in running["nodes"]] == ["gone", "ready"]
    assert (running["spec"]["placement"]["objective"], "move" in running) == ("time", False)
    assert [one for one in told(plane, job_id) if one.startswith("job.move")] == ["job.move_requested", "job.moved"]
    plane.cancel(job_id)
    plane.wait_for(job_id, "cancelled")


def test_a_job_in_the_queue_moves_without_a_stop(plane: ControlPlane) -> None:
    with held(plane.children()):
        job_id = plane.submit(plain("true"))

        move(plane, job_id, placement={"objective": "time"})
    job = plane.wait_for(job_id, "succeeded")

    assert job["spec"]["placement"]["objective"] == "time"
    assert {one["document"] for one in job["attempts"]} <= {1, 2}


@pytest.mark.nightly
@pytest.mark.slow
def test_a_move_outlives_a_killed_worker(own_plane: ControlPlane) -> None:
    job_id = own_plane.submit(counter())
    wait_until(lambda: own_plane.lines(job_id), timeout_s=30, description="it counts")
    own_plane.wait_for(job_id, "running")

    move(own_plane, job_id, placement={"objective": "time"})
    wait_until(lambda: own_plane.job(job_id)["state"] == "recovering", timeout_s=30, description="it moves")
    own_plane.kill("worker")
    own_plane.start_worker()
    wait_until(lambda: len(own_plane.lines(job_id)) == 2, timeout_s=90, description="it counts on")

    assert own_plane.job(job_id)["document"] == 2
    wait_until(lambda: len(own_plane.agents()) == 1, timeout_s=30, description="one gang is left")
    own_plane.cancel(job_id)
    own_plane.wait_for(job_id, "cancelled", timeout_s=60)
    assert not own_plane.agents()


@pytest.mark.slow
@pytest.mark.trainer
def test_a_ddp_training_moves_to_fsdp_on_another_number_of_ranks_and_its_steps_and_loss_go_on(
    own_plane: ControlPlane,
) -> None:
    alone = own_plane.submit(training(ranks=1))
    own_plane.wait_for(alone, "succeeded", timeout_s=180)
    job_id = own_plane.submit(training(ranks=1))
    own_plane.wait_for(job_id, "running", timeout_s=90)
    wait_until(lambda: own_plane.job(job_id).get("progress", {}).get("step", 0) > 5, timeout_s=60, description="steps")

    move(own_plane, job_id, strategy={"kind": "fsdp"}, resources={"cpu_processes": 2})
    job = own_plane.wait_for(job_id, "succeeded", timeout_s=180)

    first, second = job["attempts"]
    assert (first["how"], first["strategy"], second["how"], second["strategy"]) == ("moved", "ddp", "done", "fsdp")
    assert (job["plan"]["strategy"], job["plan"]["world_size"], job["progress"]["step"]) == ("fsdp", 2, STEPS)
    marks = own_plane.http("GET", f"/v1/jobs/{job_id}/metrics", params={"name": "loss"}).json()["marks"]
    assert sum(mark.get("repeated_steps", 0) for mark in marks) == 0, "no step was done twice"
    before, after = losses(own_plane, alone), losses(own_plane, job_id)
    assert set(range(10, STEPS + 1, 10)) <= set(before) & set(after), "no step is missing"
    worst = max(abs(after[step] - before[step]) / before[step] for step in before.keys() & after.keys())
    assert worst < 0.02, json.dumps({"worst": worst, "moved behind": first["last_step"]})
