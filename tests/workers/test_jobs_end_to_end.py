"""Jobs through the whole control plane: real API, real Celery workers on a real Valkey, real agents and ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.control_plane import ControlPlane, plain
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

GATE = """
import pathlib, sys, time
gate = pathlib.Path(sys.argv[1])
gate.with_suffix(".pid").write_text(str(__import__("os").getpid()))
while not gate.exists():
    time.sleep(0.02)
"""


def gated(gate: Path, **parts: object) -> dict[str, object]:
    """A job that runs until the file appears."""
    return plain(sys.executable, "-c", GATE, str(gate), **parts)


def test_a_command_runs_and_its_node_is_gone_afterwards(plane: ControlPlane) -> None:
    job_id = plane.submit(plain("echo", "hello"))

    job = plane.wait_for(job_id, "succeeded")

    assert (job["reason"], job["outcome"]) == ("done", "succeeded")
    assert [node["state"] for node in job["nodes"]] == ["gone"]
    assert job["nodes"][0]["token"] not in plane.agents()
    assert plane.lines(job_id) == ["hello"]
    moves = [move["to"] for move in job["transitions"]]
    assert moves[0] == "queued"
    assert moves[-2:] == ["stopping", "succeeded"]


def test_a_job_that_runs_for_a_while_is_seen_running(plane: ControlPlane, tmp_path: Path) -> None:
    job_id = plane.submit(gated(tmp_path / "gate"))

    job = plane.wait_for(job_id, "running")
    (tmp_path / "gate").touch()

    assert job["started_at"]
    assert plane.wait_for(job_id, "succeeded")["reason"] == "done"


def test_a_users_error_fails_the_job_with_the_ranks_last_words(plane: ControlPlane) -> None:
    job_id = plane.submit(plain(sys.executable, "-c", "raise ValueError('no such column: labels')"))

    job = plane.wait_for(job_id, "failed")

    assert job["reason"] == "user_error"
    assert "no such column: labels" in job["message"]
    assert [node["state"] for node in job["nodes"]] == ["gone"]


def test_a_users_error_is_tried_again_as_often_as_the_document_says(plane: ControlPlane, tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys; seen = pathlib.Path(sys.argv[1]); "
        "seen.open('a').write(os.environ['SHUNTER_GENERATION'] + ' '); sys.exit(len(seen.read_text()) < 6)"
    )
    document = plain(sys.executable, "-c", program, str(tmp_path / "seen"), recovery={"user_restarts": 2})

    job = plane.wait_for(plane.submit(document), "succeeded", timeout_s=40)

    assert (tmp_path / "seen").read_text() == "1 2 3 "
    assert job["generation"] == 3
    assert len(job["nodes"]) == 1


def test_a_job_that_can_never_fit_says_so_with_numbers(plane: ControlPlane) -> None:
    document = plain("true", resources={"cpu_processes": 1000})

    job = plane.wait_for(plane.submit(document), "failed")

    assert job["reason"] == "does_not_fit"
    assert "1000 CPU ranks a node needed, a node has 2" in job["message"]
    assert job["nodes"] == []


def test_a_job_is_cancelled_while_it_waits(plane: ControlPlane, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    busy = plane.submit(gated(gate, resources={"cpu_processes": 2}))
    plane.wait_for(busy, "running")
    job_id = plane.submit(plain("true"))
    wait_until(lambda: plane.job(job_id).get("waiting"), description="the job waits for a slot")

    plane.cancel(job_id)

    assert plane.wait_for(job_id, "cancelled")["reason"] == "cancelled_by_user"
    gate.touch()
    plane.wait_for(busy, "succeeded")


def test_a_job_is_cancelled_while_its_node_is_made(plane: ControlPlane) -> None:
    job_id = plane.submit(plain("sleep", "600"))
    plane.wait_for(job_id, "provisioning", "starting", "running")

    plane.cancel(job_id)

    job = plane.wait_for(job_id, "cancelled")
    assert [node["state"] for node in job["nodes"]] == ["gone"]
    assert not plane.ranks()


def test_a_job_is_cancelled_while_it_starts(plane: ControlPlane) -> None:
    document = plain("true", environment={"setup": ["sleep 600"]})
    job_id = plane.submit(document)
    wait_until(lambda: plane.job(job_id)["state"] == "starting", description="the set-up runs")

    plane.cancel(job_id)

    assert plane.wait_for(job_id, "cancelled")["reason"] == "cancelled_by_user"


def test_a_job_is_cancelled_while_it_runs(plane: ControlPlane, tmp_path: Path) -> None:
    job_id = plane.submit(gated(tmp_path / "never"))
    plane.wait_for(job_id, "running")

    plane.cancel(job_id)
    plane.cancel(job_id)

    job = plane.wait_for(job_id, "cancelled")
    assert (job["reason"], job["outcome"]) == ("cancelled_by_user", "cancelled")
    assert not plane.ranks()


def test_a_job_is_stopped_at_its_time_limit(plane: ControlPlane, tmp_path: Path) -> None:
    job_id = plane.submit(gated(tmp_path / "never", limits={"max_duration_s": 1.0}))

    assert plane.wait_for(job_id, "failed")["reason"] == "duration_exceeded"


def test_the_events_of_a_job_have_no_gap_and_end_with_its_end(plane: ControlPlane) -> None:
    job_id = plane.submit(plain("true"))
    plane.wait_for(job_id, "succeeded")

    events = plane.events(job_id)

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "job.state"
    assert events[-1]["data"]["to"] == "succeeded"


def test_providers_are_shown_with_their_offers_health(plane: ControlPlane) -> None:
    wait_until(
        lambda: plane.http("GET", "/v1/providers").json()["items"][0]["status"] == "ok",
        description="a worker has read the provider",
    )

    (local,) = plane.http("GET", "/v1/providers").json()["items"]

    assert (local["name"], local["bills"]) == ("local", False)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_fifty_jobs_on_two_slots_all_finish_and_none_is_left_behind(plane: ControlPlane, tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys, time; here = pathlib.Path(sys.argv[1]); mine = here / os.environ['SHUNTER_JOB_ID']; "
        "mine.touch(); print(len(list(here.iterdir()))); time.sleep(0.1); mine.unlink()"
    )
    jobs = [plane.submit(plain(sys.executable, "-c", program, str(tmp_path), name=f"job {n}")) for n in range(50)]

    wait_until(
        lambda: all(plane.job(job_id)["state"] == "succeeded" for job_id in jobs),
        timeout_s=200,
        description="all fifty succeeded",
    )

    started = [plane.job(job_id)["transitions"][1]["at"] for job_id in jobs]
    # Steps of one burst run side by side, so neighbours may swap; nobody is overtaken by many.
    assert all(earlier < later for earlier, later in zip(started, started[10:], strict=False))
    running = [int(plane.lines(job_id)[0]) for job_id in jobs]
    assert max(running) <= 2
    assert not plane.agents()
