"""Jobs on hosts of their own: a control plane that listens on loopback only, hosts in namespaces, nothing played."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shunter_store import reaching
from support.control_plane import ControlPlane, control_plane, plain
from support.hosts import Host, Pool, make_pool
from support.ssh_pool import as_variable, pool_settings
from support.waiting import wait_until

pytestmark = pytest.mark.slow

TICKS = """
import sys, time
for tick in range(int(sys.argv[1])):
    print("tick", tick, time.time(), flush=True)
    time.sleep(0.25)
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with make_pool(tmp_path_factory.mktemp("pool"), 2) as made:
        yield made


@pytest.fixture(scope="module")
def plane(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    settings = pool_settings(pool, look_every_s=2)
    with control_plane(tmp_path_factory.mktemp("plane") / "data", **as_variable(settings)) as made:
        yield made


@pytest.fixture(autouse=True)
def _as_new(pool: Pool) -> None:
    pool.reset()


def ticking(ticks: int, **parts: Any) -> dict[str, Any]:
    return plain(sys.executable, "-c", TICKS, str(ticks), **parts)


def nodes_of(host: Host) -> list[Path]:
    return sorted((host.folder / "root/.shunter/nodes").glob("shn-*"))


def host_of(plane: ControlPlane, pool: Pool, job_id: str) -> Host:
    with plane.database() as database:
        rows = database.read(
            lambda conn: [row for row in reaching.reached_nodes(conn, ["pool"]) if row.job_id == job_id]
        )
        (name,) = {row.handle.rpartition("@")[2] for row in rows}
    return next(host for host in pool.hosts if host.name == name)


def agents(host: Host) -> list[int]:
    found = []
    for pid in host.processes():
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(word.endswith(b"agent.pyz") for word in command):
            found.append(pid)
    return found


def test_a_job_runs_on_a_host_that_cannot_reach_the_service_and_leaves_nothing_there(
    plane: ControlPlane, pool: Pool
) -> None:
    job_id = plane.submit(plain("sh", "-c", "hostname; echo to stderr >&2; echo $HOME"))

    job = plane.wait_for(job_id, "succeeded", timeout_s=60)

    assert job["provider"] == "pool"
    assert set(plane.lines(job_id)) == {host_name(plane, job_id), "to stderr", "/root"}
    for host in pool.hosts:
        assert agents(host) == []
        assert not [path for node in nodes_of(host) for path in node.glob("launch.json")]


def host_name(plane: ControlPlane, job_id: str) -> str:
    return next(line for line in plane.lines(job_id) if line.startswith("node"))


def test_sshd_restarts_and_drops_every_session_while_the_training_goes_on(plane: ControlPlane, pool: Pool) -> None:
    job_id = plane.submit(ticking(60))
    plane.wait_for(job_id, "running", timeout_s=60)
    wait_until(lambda: len(plane.lines(job_id)) > 2, timeout_s=30, description="the first lines are here")
    host = host_of(plane, pool, job_id)

    host.stop_sshd(drop_sessions=True)
    before = len(plane.lines(job_id))
    host.start_sshd()

    wait_until(lambda: len(plane.lines(job_id)) > before + 4, timeout_s=40, description="lines come again")
    plane.wait_for(job_id, "succeeded", timeout_s=60)
    ticks = [int(line.split()[1]) for line in plane.lines(job_id)]
    assert ticks == list(range(60))
    assert plane.job(job_id)["attempt"]["generation"] == 1


def test_logs_that_somebody_watches_are_less_than_two_seconds_behind(plane: ControlPlane) -> None:
    job_id = plane.submit(ticking(100))
    plane.wait_for(job_id, "running", timeout_s=60)
    wait_until(lambda: len(plane.lines(job_id)) > 12, timeout_s=30, description="it is watched and writes")

    behind_s = []
    for _ in range(8):
        newest = float(plane.lines(job_id)[-1].split()[2])
        behind_s.append(time.time() - newest)
        time.sleep(0.4)

    plane.cancel(job_id)
    plane.wait_for(job_id, "cancelled", timeout_s=60)
    assert sorted(behind_s)[len(behind_s) // 2] < 2.0, behind_s


def test_two_jobs_share_one_host_and_a_third_waits_for_a_slot(plane: ControlPlane, pool: Pool) -> None:
    jobs = [plane.submit(ticking(24)) for _ in range(5)]

    for job_id in jobs[:4]:
        plane.wait_for(job_id, "running", "succeeded", timeout_s=90)

    for job_id in jobs:
        plane.wait_for(job_id, "succeeded", timeout_s=120)
    leases = [json.loads((node / "lease.json").read_text()) for host in pool.hosts for node in nodes_of(host)]
    assert {lease["deployment"] for lease in leases} == {leases[0]["deployment"]}


def test_the_control_plane_dies_and_the_training_goes_on_and_is_caught_up_with(plane: ControlPlane, pool: Pool) -> None:
    job_id = plane.submit(ticking(60))
    plane.wait_for(job_id, "running", timeout_s=60)
    host = host_of(plane, pool, job_id)

    plane.kill("worker")
    plane.kill("api")
    time.sleep(2)
    alive = agents(host)
    plane.start_api()
    plane.start_worker()

    assert len(alive) >= 1
    plane.wait_for(job_id, "succeeded", timeout_s=60)
    ticks = [int(line.split()[1]) for line in plane.lines(job_id)]
    assert ticks == list(range(60))


def test_a_host_whose_key_was_changed_gets_no_job_and_the_other_does(plane: ControlPlane, pool: Pool) -> None:
    pool.hosts[0].change_host_key()
    time.sleep(2.5)  # what was found there is good for two seconds

    job_id = plane.submit(plain("hostname"))
    plane.wait_for(job_id, "succeeded", timeout_s=90)

    assert plane.lines(job_id) == [pool.hosts[1].name]
