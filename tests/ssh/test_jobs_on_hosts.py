"""Jobs on hosts of their own: a control plane that listens on loopback only, hosts in namespaces, nothing played."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shunter_store import ledger
from support.control_plane import ControlPlane, control_plane, plain
from support.hosts import Host, Pool, make_pool
from support.ssh_pool import as_variable, pool_settings
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

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
        (node,) = database.read(lambda conn: ledger.of_job(conn, job_id, live_only=True))
    assert node.handle is not None
    return next(host for host in pool.hosts if node.handle.endswith(f"@{host.name}"))


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

    plane.wait_for(job_id, "succeeded", timeout_s=90)

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
    assert "job.recovering" not in [event["type"] for event in plane.events(job_id)]


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


def test_a_shell_opens_in_the_job_s_folder_with_a_key_that_goes_with_the_job(plane: ControlPlane, pool: Pool) -> None:
    job_id = plane.submit(ticking(120))
    plane.wait_for(job_id, "running", timeout_s=60)
    host = host_of(plane, pool, job_id)
    keys = host.folder / "root/.ssh/authorized_keys"
    before = keys.read_text()

    told = shunter(plane, "ssh", job_id, "--", "sh", "-c", "pwd; hostname; echo '; touch HIT'")
    during = keys.read_text()
    plane.cancel(job_id)
    plane.wait_for(job_id, "cancelled", timeout_s=60)

    folder, name, hostile = told.stdout.splitlines()
    assert folder.startswith("/root/.shunter/nodes/shn-")
    assert (name, hostile) == (host.name, "; touch HIT")
    assert during.startswith(before)
    assert during.count("shunter-access:") == 1
    assert keys.read_text() == before


def test_nobody_opens_a_shell_where_there_is_no_node(plane: ControlPlane) -> None:
    job_id = plane.submit(plain("true"))
    plane.wait_for(job_id, "succeeded", timeout_s=60)

    answer = plane.http("POST", f"/v1/jobs/{job_id}/shells", json={"public_key": "ssh-ed25519 " + "A" * 68})
    bad = plane.http("POST", f"/v1/jobs/{job_id}/shells", json={"public_key": 'command="x" ssh-ed25519 AAAA'})

    assert answer.status_code == 409
    assert bad.status_code == 422


def test_the_bundle_of_debug_holds_what_helps_and_no_secret(plane: ControlPlane, tmp_path: Path) -> None:
    planted = {"HF_TOKEN": "hf_plantedplantedplanted", "DB_PASSWORD": "correct-horse-battery"}
    script = "import os, time; print(dict(os.environ)); print('raised from', os.environ['DB_PASSWORD']); time.sleep(60)"
    job_id = plane.submit(plain(sys.executable, "-c", script, environment={"variables": planted}))
    plane.wait_for(job_id, "running", timeout_s=60)
    wait_until(lambda: len(plane.lines(job_id)) >= 2, timeout_s=30, description="the secret is in the log")
    api_key = (plane.data_dir / "api-key").read_text().strip()

    shunter(plane, "debug", job_id, "--into", str(tmp_path / "bundle.tar.gz"))
    plane.cancel(job_id)

    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        files = {
            member.name.partition("/")[2]: archive.extractfile(member).read().decode()  # type: ignore[union-attr]  # all are files
            for member in archive
        }
    everything = "\n".join(files.values())
    for secret in (*planted.values(), api_key, "sns_", "PRIVATE KEY-----\n"):
        assert secret not in everything, secret
    assert {"job.json", "ledger.json", "bootstraps.json", "events.json", "versions.json", "logs.txt"} <= set(files)
    of_nodes = {name.rpartition("/")[2] for name in files if name.startswith("nodes/")}
    assert {"agent.json", "lease.json", "journal-journal.jsonl", "processes.json"} <= of_nodes
    assert "clock_skew_s" in files["bootstraps.json"]
    plane.wait_for(job_id, "cancelled", timeout_s=60)


def shunter(plane: ControlPlane, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line as a user runs it."""
    command = [sys.executable, "-m", "shunter", *arguments[:1], "--data-dir", str(plane.data_dir), *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done
