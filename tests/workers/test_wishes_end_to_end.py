"""What users ask of jobs, through real API, workers, agents and ranks: pause, resume, checkpoint, retry, new limits."""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from shunter_store.node import ledger
from support.control_plane import ControlPlane, plain
from support.documents import tiny_lm
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

STEPS = 2000
"""Some 20 s."""

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


def counter(**parts: Any) -> dict[str, Any]:
    """A program that counts, saves where it is when it is stopped, and goes on from there."""
    document = plain(sys.executable, "-c", COUNTS, "${checkpoint_dir}", **parts)
    document["workload"] |= {
        "resume_arguments": ["${latest_checkpoint}"],
        "checkpoint": {"pattern": "checkpoint-*", "complete_file": "done"},
    }
    return document


def ask(plane: ControlPlane, job_id: str, wish: str, **body: Any) -> dict[str, Any]:
    answer = plane.http("POST", f"/v1/jobs/{job_id}/{wish}", **({"json": body} if body else {}))
    assert answer.status_code in (201, 202), answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def is_at_rest(plane: ControlPlane, job_id: str) -> bool:
    job = plane.job(job_id)
    return (job["state"], job.get("waiting", {}).get("reason")) == ("queued", "paused")


def files_below(folder: Path) -> list[Path]:
    return [Path(place) / name for place, _, names in os.walk(folder) for name in names]


def saved(plane: ControlPlane, job_id: str) -> list[int]:
    """Steps of the committed checkpoints, newest first."""
    items = plane.http("GET", f"/v1/jobs/{job_id}/checkpoints").json()["items"]
    return [int(item["step"]) for item in items]


def test_a_job_that_is_paused_in_the_queue_waits_until_it_is_resumed(plane: ControlPlane, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.02)"
    busy = plane.submit(plain(sys.executable, "-c", waits, resources={"cpu_processes": 2}))
    plane.wait_for(busy, "running")
    paused, other = plane.submit(plain("true")), plane.submit(plain("true"))
    ask(plane, paused, "pause")
    wait_until(lambda: is_at_rest(plane, paused), description="the job rests")

    gate.touch()
    plane.wait_for(other, "succeeded")
    assert is_at_rest(plane, paused)
    ask(plane, paused, "resume")

    assert plane.wait_for(paused, "succeeded")["reason"] == "done"


def test_a_paused_program_gives_its_node_back_and_goes_on_where_it_was(plane: ControlPlane) -> None:
    job_id = plane.submit(counter())
    wait_until(lambda: plane.lines(job_id), description="it counts")
    plane.wait_for(job_id, "running")

    ask(plane, job_id, "pause")
    wait_until(lambda: is_at_rest(plane, job_id), timeout_s=40, description="the job rests")
    resting = plane.job(job_id)
    ask(plane, job_id, "resume")
    wait_until(lambda: len(plane.lines(job_id)) == 2, timeout_s=40, description="it counts on")

    reached = saved(plane, job_id)[0]
    assert [node["state"] for node in resting["nodes"]] == ["gone"]
    assert "plan" not in resting
    assert plane.lines(job_id) == ["begins at 0", f"begins at {reached}"]
    assert reached > 0
    running = plane.wait_for(job_id, "running")
    assert [(one["generation"], one["how"]) for one in running["attempts"]] == [(1, "paused"), (2, "running")]
    plane.cancel(job_id)
    plane.wait_for(job_id, "cancelled")


@pytest.mark.slow
def test_a_job_at_rest_is_cancelled_and_its_retry_goes_on_from_its_checkpoint(plane: ControlPlane) -> None:
    job_id = plane.submit(counter())
    wait_until(lambda: plane.lines(job_id), description="it counts")
    plane.wait_for(job_id, "running")
    ask(plane, job_id, "pause")
    wait_until(lambda: is_at_rest(plane, job_id), timeout_s=40, description="the job rests")
    plane.cancel(job_id)
    plane.wait_for(job_id, "cancelled")
    (reached,) = saved(plane, job_id)

    new = ask(plane, job_id, "retry")
    gone = plane.http("DELETE", f"/v1/jobs/{job_id}")
    wait_until(lambda: not plane.http("GET", f"/v1/jobs/{job_id}").is_success, description="the old record is gone")
    wait_until(lambda: plane.lines(new["id"]), timeout_s=40, description="the new one counts")

    assert (new["resumes_from_step"], gone.status_code) == (reached, 204)
    assert plane.lines(new["id"]) == [f"begins at {reached}"]
    plane.cancel(new["id"])
    plane.wait_for(new["id"], "cancelled")
    objects = plane.data_dir / "objects"
    wait_until(
        lambda: {path.parts[-3] for path in files_below(objects / job_id)} == {"checkpoints"},
        timeout_s=20,
        description="only what the new job began with is left of the old one",
    )
    assert plane.http("DELETE", f"/v1/jobs/{new['id']}").status_code == 204
    wait_until(
        lambda: not files_below(objects / job_id) and not files_below(objects / new["id"]),
        timeout_s=20,
        description="nobody needs the bytes any more",
    )


def limit(plane: ControlPlane, job_id: str, max_duration_s: float) -> None:
    body = {"limits": {"max_duration_s": max_duration_s}}
    answer = plane.http("PATCH", f"/v1/jobs/{job_id}", json=body, headers={"If-Match": "*"})
    assert answer.status_code == 200, answer.text


def stop_at(plane: ControlPlane, job_id: str) -> datetime | None:
    """When the job's node stops by itself."""
    with plane.database() as database:
        (node,) = database.read(lambda conn: ledger.of_job(conn, job_id))
    return node.stop_at


def test_a_limit_that_is_set_while_a_job_runs_reaches_its_node_and_stops_it(plane: ControlPlane) -> None:
    job_id = plane.submit(counter())
    started = datetime.fromisoformat(plane.wait_for(job_id, "running")["started_at"])

    limit(plane, job_id, 3600.0)
    wait_until(lambda: stop_at(plane, job_id), description="the node is told")
    told = stop_at(plane, job_id)
    limit(plane, job_id, 0.5)

    assert told is not None
    assert abs((told - started).total_seconds() - 3605) < 1
    assert plane.wait_for(job_id, "failed")["reason"] == "duration_exceeded"


def test_many_are_cancelled_by_label_whatever_they_do(plane: ControlPlane) -> None:
    jobs = [plane.submit(counter(labels={"sweep": "42"})) for _ in range(4)]
    wait_until(
        lambda: "running" in {plane.job(job_id)["state"] for job_id in jobs}, timeout_s=60, description="one runs"
    )
    ask(plane, jobs[3], "pause")

    answer = plane.http("POST", "/v1/jobs/cancel", json={"label": ["sweep=42"]})

    assert set(answer.json()["ids"]) == set(jobs)
    for job_id in jobs:
        plane.wait_for(job_id, "cancelled")
    assert not plane.ranks()


@pytest.mark.slow
@pytest.mark.parametrize("moment_s", [0.0, *(pytest.param(s, marks=pytest.mark.nightly) for s in (0.1, 0.3, 0.8))])
def test_a_pause_and_a_resume_outlive_a_killed_worker(own_plane: ControlPlane, moment_s: float) -> None:
    job_id = own_plane.submit(counter())
    wait_until(lambda: own_plane.lines(job_id), timeout_s=30, description="it counts")
    own_plane.wait_for(job_id, "running")

    for wish in ("pause", "resume"):
        ask(own_plane, job_id, wish)
        time.sleep(moment_s)  # the moment itself is what is tried
        own_plane.kill("worker")
        own_plane.start_worker()
        if wish == "pause":
            wait_until(lambda: is_at_rest(own_plane, job_id), timeout_s=60, description="the job rests")
            assert not own_plane.agents()
    wait_until(lambda: len(own_plane.lines(job_id)) == 2, timeout_s=60, description="it counts on")

    assert own_plane.lines(job_id)[1] == f"begins at {saved(own_plane, job_id)[0]}"
    assert len(own_plane.agents()) == 1
    own_plane.cancel(job_id)
    own_plane.wait_for(job_id, "cancelled", timeout_s=60)
    assert not own_plane.agents()


@pytest.mark.slow
@pytest.mark.trainer
def test_a_training_saves_on_request_rests_and_goes_on_to_its_end_as_if_nothing_had_been(
    own_plane: ControlPlane,
) -> None:
    job_id = own_plane.submit(training(STEPS))
    own_plane.wait_for(job_id, "running", timeout_s=90)
    wait_until(lambda: step_of(own_plane, job_id) > 5, timeout_s=60, description="it trains")

    ask(own_plane, job_id, "checkpoint")
    wait_until(lambda: saved(own_plane, job_id), timeout_s=60, description="a checkpoint is committed")
    on_request = saved(own_plane, job_id)
    assert own_plane.job(job_id)["state"] == "running"
    ask(own_plane, job_id, "pause")
    wait_until(lambda: is_at_rest(own_plane, job_id), timeout_s=60, description="the job rests")
    at_rest = saved(own_plane, job_id)
    ask(own_plane, job_id, "resume")
    job = own_plane.wait_for(job_id, "succeeded", timeout_s=180)

    assert len(on_request) == 1
    assert at_rest[0] > on_request[0]
    assert (job["progress"]["step"], job["generation"]) == (STEPS, 2)
    first, second = job["attempts"]
    assert (first["how"], second["how"]) == ("paused", "done")
    assert first["last_step"] <= at_rest[0]
    metrics = own_plane.http("GET", f"/v1/jobs/{job_id}/metrics", params={"name": "loss"}).json()
    generations = [mark for mark in metrics["marks"] if mark["kind"] == "generation"]
    assert sum(mark.get("repeated_steps", 0) for mark in generations) == 0, "no step was done twice"


@pytest.mark.slow
@pytest.mark.trainer
def test_a_training_that_ran_out_of_time_is_taken_up_again_with_more(own_plane: ControlPlane) -> None:
    job_id = own_plane.submit(training(STEPS))
    own_plane.wait_for(job_id, "running", timeout_s=90)
    wait_until(lambda: step_of(own_plane, job_id) > 5, timeout_s=60, description="it trains")
    limit(own_plane, job_id, 0.5)
    wait_until(lambda: own_plane.job(job_id)["state"] == "failed", timeout_s=60, description="its time is up")
    reached = saved(own_plane, job_id)[0]

    new = ask(own_plane, job_id, "retry", limits={"max_duration_s": None})
    job = own_plane.wait_for(new["id"], "succeeded", timeout_s=180)

    assert own_plane.job(job_id)["reason"] == "duration_exceeded"
    assert (job["retry_of"], job["resumes_from_step"]) == (job_id, reached)
    assert job["progress"]["step"] == STEPS
    lines = own_plane.lines(new["id"])
    assert any(f"resumed from step-{reached:08d}" in line for line in lines), lines[:5]


def training(steps: int) -> dict[str, Any]:
    """Saves only when it is asked to, and at the end."""
    document = tiny_lm()
    document["workload"]["model"] |= {"layers": 1, "hidden": 32, "heads": 2, "context": 32}
    document["workload"]["data"]["sequence_length"] = 32
    document["workload"] |= {"duration": {"steps": steps}, "checkpoint": {"every_s": 3600, "keep": 3}}
    document["workload"].pop("evaluation", None)
    return document


def step_of(plane: ControlPlane, job_id: str) -> int:
    return int(plane.job(job_id).get("progress", {}).get("step", 0))
