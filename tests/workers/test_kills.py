"""Parts of the control plane, agents and ranks are killed with SIGKILL; no accepted job is lost, no node is doubled."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import redis
from shunter_store.tables import leases
from sqlalchemy import Connection, select
from support import proc
from support.control_plane import ControlPlane, control_plane, plain
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

# Counts up in a file, and goes on where it was after a restart; ends when the gate opens.
COUNTER = """
import os, pathlib, sys, time
gate, count = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
(count.parent / ("pid-" + os.environ["SHUNTER_GENERATION"])).write_text(str(os.getpid()))
n = int(count.read_text()) if count.exists() else 0
while not gate.exists():
    n += 1
    count.with_suffix(".new").write_text(str(n))
    count.with_suffix(".new").rename(count)
    print("count", n, flush=True)
    time.sleep(0.1)
"""


def counting(tmp_path: Path, **parts: object) -> dict[str, object]:
    return plain(sys.executable, "-c", COUNTER, str(tmp_path / "gate"), str(tmp_path / "count"), **parts)


def count(tmp_path: Path) -> int:
    return int((tmp_path / "count").read_text())


def grows(tmp_path: Path) -> None:
    """Wait until the program has counted on from now."""
    now = count(tmp_path)
    wait_until(lambda: count(tmp_path) > now + 2, description="the program goes on")


def running(plane: ControlPlane, tmp_path: Path, **parts: object) -> str:
    job_id = plane.submit(counting(tmp_path, **parts))
    plane.wait_for(job_id, "running")
    return job_id


def held_leases(conn: Connection) -> list[str]:
    return list(conn.execute(select(leases.c.name).where(leases.c.owner.is_not(None))).scalars())


def test_a_killed_rank_is_recovered_and_the_job_succeeds(own_plane: ControlPlane, tmp_path: Path) -> None:
    job_id = running(own_plane, tmp_path)
    before = count(tmp_path)

    os.kill(own_plane.ranks()[0], signal.SIGKILL)

    wait_until(lambda: (tmp_path / "pid-2").exists(), timeout_s=30, description="generation 2 runs")
    grows(tmp_path)
    (tmp_path / "gate").touch()
    job = own_plane.wait_for(job_id, "succeeded")
    assert count(tmp_path) > before
    assert job["generation"] == 2
    assert "recovering" in [move["to"] for move in job["transitions"]]
    assert len(job["nodes"]) == 1, "the node lives and is kept"


def test_a_killed_agent_is_replaced_and_the_job_succeeds(own_plane: ControlPlane, tmp_path: Path) -> None:
    job_id = running(own_plane, tmp_path)
    first = int((tmp_path / "pid-1").read_text())
    ((_, agent),) = own_plane.agents().items()

    os.kill(agent.pid, signal.SIGKILL)

    wait_until(lambda: (tmp_path / "pid-2").exists(), timeout_s=30, description="generation 2 runs")
    assert not proc.lives(first), "ranks die with their agent"
    assert len(own_plane.ranks()) == 1
    (tmp_path / "gate").touch()
    job = own_plane.wait_for(job_id, "succeeded")
    assert [node["state"] for node in job["nodes"]] == ["gone", "gone"]
    assert job["generation"] == 2


def test_recovery_has_a_budget(own_plane: ControlPlane, tmp_path: Path) -> None:
    job_id = running(own_plane, tmp_path, recovery={"node_recoveries": 0})

    os.kill(own_plane.ranks()[0], signal.SIGKILL)

    job = own_plane.wait_for(job_id, "failed")
    assert job["reason"] == "recovery_exhausted"
    assert "node_recoveries (0)" in job["message"]


def test_a_broker_that_refuses_to_write_ends_no_worker(own_plane: ControlPlane, tmp_path: Path) -> None:
    """As one does whose disk is full, or that became a replica: Celery took its answer for the end of everything."""
    worker = own_plane.roles["worker"]
    with redis.Redis(unix_socket_path=str(own_plane.socket)) as broker:
        broker.config_set("min-replicas-to-write", 1)
        wait_until(lambda: "ResponseError" in own_plane.log("worker"), description="the worker was refused")
        job_id = running(own_plane, tmp_path)

        broker.config_set("min-replicas-to-write", 0)
    refusals = own_plane.log("worker").count("ResponseError")
    (tmp_path / "gate").touch()

    own_plane.wait_for(job_id, "succeeded")
    assert worker.poll() is None
    assert refusals < 20, "it comes back at once, and fills the log"


def test_children_that_cannot_begin_go_on_trying(own_plane: ControlPlane, tmp_path: Path) -> None:
    """Celery takes them for good: they would hold their places for ever, and nobody would do anything."""
    run, away = own_plane.data_dir / "run", own_plane.data_dir / "run.away"
    old = own_plane.children()
    run.rename(away)
    run.touch()  # as a disk that is full, or a database that is away: what they do first fails

    for child in old:
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: own_plane.log("worker").count("cannot begin yet") >= 4, description="both tried twice")
    run.unlink()
    away.rename(run)

    job_id = running(own_plane, tmp_path)
    (tmp_path / "gate").touch()
    own_plane.wait_for(job_id, "succeeded")
    assert len(set(own_plane.children()) - set(old)) == 2


def test_a_killed_worker_child_is_replaced_and_its_steps_are_done_by_others(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    jobs = [own_plane.submit(plain("true", name=f"job {n}")) for n in range(6)]
    wait_until(lambda: own_plane.job(jobs[0])["state"] != "queued", description="steps are under way")

    for child in own_plane.children():
        os.kill(child, signal.SIGKILL)

    for job_id in jobs:
        job = own_plane.wait_for(job_id, "succeeded", timeout_s=60)
        assert len([node for node in job["nodes"] if node.get("ready_at")]) == 1, "others were never made"
    assert len(own_plane.children()) == 2
    assert not own_plane.agents()


def test_a_killed_worker_group_leaves_trainings_alone_and_a_new_one_carries_on(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    job_id = running(own_plane, tmp_path)
    waiting = own_plane.submit(plain("true", resources={"cpu_processes": 2}))
    children = own_plane.children()

    own_plane.kill("worker")

    wait_until(lambda: not any(proc.lives(child) for child in children), description="children die with their parent")
    grows(tmp_path)
    (tmp_path / "gate").touch()
    time.sleep(1)
    assert own_plane.job(job_id)["state"] == "running", "nobody is there to move it"
    own_plane.start_worker()
    assert own_plane.wait_for(job_id, "succeeded")["generation"] == 1
    own_plane.wait_for(waiting, "succeeded")


def test_jobs_move_on_while_the_broker_is_dead(own_plane: ControlPlane, tmp_path: Path) -> None:
    own_plane.kill("redis")

    job_id = own_plane.submit(plain("echo", "no broker"))

    own_plane.wait_for(job_id, "succeeded")


def test_hints_flow_again_when_the_broker_is_back(own_plane: ControlPlane) -> None:
    own_plane.wait_for(own_plane.submit(plain("true")), "succeeded")
    own_plane.kill("redis")
    own_plane.wait_for(own_plane.submit(plain("true")), "succeeded")

    own_plane.start_redis()

    job_id = own_plane.submit(plain("true"))
    own_plane.wait_for(job_id, "succeeded")
    wait_until(
        lambda: "the broker answers again" in own_plane.log("worker"), timeout_s=30, description="the relay is back"
    )
    assert own_plane.roles["worker"].poll() is None


def test_a_training_goes_on_without_its_control_plane_and_everything_is_told_afterwards(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    job_id = running(own_plane, tmp_path)
    pid = (tmp_path / "pid-1").read_text()

    for role in ("worker", "api", "redis"):
        own_plane.kill(role)
    grows(tmp_path)
    time.sleep(3)
    grows(tmp_path)
    for start in (own_plane.start_redis, own_plane.start_api, own_plane.start_worker):
        start()

    (rank,) = own_plane.ranks()
    assert str(rank) == pid, "the same process, untouched"
    (tmp_path / "gate").touch()
    job = own_plane.wait_for(job_id, "succeeded", timeout_s=60)
    assert job["generation"] == 1
    events = own_plane.events(job_id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    counted = [int(line.removeprefix("count ")) for line in own_plane.lines(job_id)]
    assert counted == list(range(1, count(tmp_path) + 1)), "every line, once, in order"


def test_a_warm_stop_finishes_steps_and_gives_every_lease_back(own_plane: ControlPlane) -> None:
    own_plane.wait_for(own_plane.submit(plain("true")), "succeeded")
    began, alive = (
        time.monotonic(),
        [own_plane.data_dir / "run" / f"alive-{pid}" for pid in own_plane.children()],
    )

    status = own_plane.stop("worker")

    assert status == 0
    assert time.monotonic() - began < 10
    with own_plane.database() as database:
        held = database.read(held_leases)
    assert held == []
    assert "Traceback" not in own_plane.log("worker")
    assert alive
    assert not any(file.exists() for file in alive)


def test_a_frozen_agent_is_a_condition_and_never_a_failure(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    quick = {"SHUNTER_TIMING__UNREACHABLE_AFTER_S": "2", "SHUNTER_PACE__QUIET_S": "0.3"}
    with control_plane(tmp_path_factory.mktemp("frozen") / "data", **quick) as plane:
        job_id = running(plane, tmp_path)
        (agent,) = plane.agents().values()

        os.kill(agent.pid, signal.SIGSTOP)
        wait_until(lambda: plane.job(job_id)["health"] == "unreachable", timeout_s=20, description="silence is noticed")
        grows(tmp_path)
        state = plane.job(job_id)["state"]
        os.kill(agent.pid, signal.SIGCONT)
        wait_until(lambda: plane.job(job_id)["health"] == "ok", timeout_s=20, description="it is back")
        (tmp_path / "gate").touch()

        assert state == "running"
        assert plane.wait_for(job_id, "succeeded")["generation"] == 1
