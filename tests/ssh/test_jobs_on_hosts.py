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
from shunter_store.node import ledger
from support.control_plane import ControlPlane, control_plane, plain
from support.hosts import Host, Pool, make_pool
from support.ssh_pool import as_variable, pool_settings
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GATE = "/root/gate"
PATIENCE_S = 150.0
"""For what takes moments on a quiet machine."""
TICKS = """
import itertools, os, sys, time
for tick in itertools.count():
    print("tick", tick, time.time(), flush=True)
    if os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
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
    for host in pool.hosts:
        gate_of(host).unlink(missing_ok=True)


def ticking() -> dict[str, Any]:
    """A job that writes a line every tenth of a second, until the gate of its host is open."""
    return plain(sys.executable, "-c", TICKS, GATE)


def gate_of(host: Host) -> Path:
    return host.folder / GATE.lstrip("/")


def ticks_of(plane: ControlPlane, job_id: str) -> list[int]:
    return [int(line.split()[1]) for line in plane.lines(job_id)]


def nodes_of(host: Host) -> list[Path]:
    return sorted((host.folder / "root/.shunter/nodes").glob("shn-*"))


def waits_for(job: dict[str, Any]) -> str:
    return str((job.get("waiting") or {}).get("reason", ""))


def output_of(host: Host) -> list[str]:
    """What the newest job's rank has written there."""
    *_, log = sorted(host.folder.glob("root/.shunter/nodes/*/logs/*/*stdout*"), key=lambda path: path.stat().st_mtime)
    return log.read_text().splitlines()


def host_of(plane: ControlPlane, pool: Pool, job_id: str) -> Host:
    with plane.database() as database:
        (node,) = database.read(lambda conn: ledger.of_job(conn, job_id, live_only=True))
    assert node.handle is not None, "a job that runs has a node with a handle"
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

    plane.wait_for(job_id, "succeeded", timeout_s=PATIENCE_S)

    assert set(plane.lines(job_id)) == {host_name(plane, job_id), "to stderr", "/root"}
    for host in pool.hosts:
        assert agents(host) == []
        assert not [path for node in nodes_of(host) for path in node.glob("launch.json")]


def host_name(plane: ControlPlane, job_id: str) -> str:
    return next(line for line in plane.lines(job_id) if line.startswith("node"))


def test_sshd_restarts_and_drops_every_session_while_the_training_goes_on(plane: ControlPlane, pool: Pool) -> None:
    job_id = plane.submit(ticking())
    plane.wait_for(job_id, "running", timeout_s=PATIENCE_S)
    wait_until(lambda: len(plane.lines(job_id)) > 2, timeout_s=PATIENCE_S, description="the first lines are here")
    host = host_of(plane, pool, job_id)

    host.stop_sshd(drop_sessions=True)
    before = len(plane.lines(job_id))
    host.start_sshd()

    wait_until(lambda: len(plane.lines(job_id)) > before + 4, timeout_s=PATIENCE_S, description="lines come again")
    gate_of(host).touch()
    plane.wait_for(job_id, "succeeded", timeout_s=PATIENCE_S)
    ticks = ticks_of(plane, job_id)
    assert ticks == list(range(len(ticks)))
    assert "job.recovering" not in [event["type"] for event in plane.events(job_id)]


def test_logs_that_somebody_watches_are_less_than_two_seconds_behind(plane: ControlPlane) -> None:
    job_id = plane.submit(ticking())
    plane.wait_for(job_id, "running", timeout_s=PATIENCE_S)
    wait_until(lambda: len(plane.lines(job_id)) > 12, timeout_s=PATIENCE_S, description="it is watched and writes")
    behind_s: list[float] = []

    def keeps_up() -> bool:
        """By the median of the last few looks: on a loaded machine one may take long by itself."""
        time.sleep(0.2)
        behind_s.append(time.time() - float(plane.lines(job_id)[-1].split()[2]))
        return len(behind_s) >= 8 and sorted(behind_s[-8:])[4] < 2.0

    wait_until(keeps_up, timeout_s=PATIENCE_S, description="the newest line is less than two seconds old")
    plane.cancel(job_id)
    plane.wait_for(job_id, "cancelled", timeout_s=PATIENCE_S)


def test_two_jobs_share_one_host_and_a_third_waits_for_a_slot(plane: ControlPlane, pool: Pool) -> None:
    jobs = [plane.submit(ticking()) for _ in range(5)]

    def standing() -> list[str]:
        return sorted(job["state"] if job["state"] == "running" else waits_for(job) for job in map(plane.job, jobs))

    wait_until(
        lambda: standing() == ["running"] * 4 + ["slots_taken"], timeout_s=PATIENCE_S, description="four run, one waits"
    )
    for host in pool.hosts:
        gate_of(host).touch()
    for job_id in jobs:
        plane.wait_for(job_id, "succeeded", timeout_s=PATIENCE_S)
    leases = [json.loads((node / "lease.json").read_text()) for host in pool.hosts for node in nodes_of(host)]
    assert {lease["deployment"] for lease in leases} == {leases[0]["deployment"]}


@pytest.mark.trainer
def test_a_training_spans_hosts_that_know_nothing_of_each_other(plane: ControlPlane, pool: Pool) -> None:
    from support.trainings import document  # brings torch, which nothing else here needs

    members = {"duration": {"steps": 8}, "batch": {"global_size": 8}, "log_every_steps": 1}
    job = {**document(**members), "strategy": {"kind": "ddp"}, "resources": {"nodes": 2, "cpu_processes": 2}}

    job_id = plane.submit(job)

    plane.wait_for(job_id, "succeeded", timeout_s=240)
    (met,) = [event["data"] for event in plane.events(job_id) if event["type"] == "gang.met"]
    assert {node["address"] for node in met["nodes"]} == {host.address for host in pool.hosts}
    assert {node["interface"] for node in met["nodes"]} == {"eth0"}
    leases = [json.loads((node / "lease.json").read_text()) for host in pool.hosts for node in nodes_of(host)]
    assert [lease["slots"] for lease in leases if lease["job"] == job_id] == [[0, 1], [0, 1]]
    assert plane.job(job_id)["plan"]["world_size"] == 4
    assert [agents(host) for host in pool.hosts] == [[], []]


def test_the_control_plane_dies_and_the_training_goes_on_and_is_caught_up_with(plane: ControlPlane, pool: Pool) -> None:
    job_id = plane.submit(ticking())
    plane.wait_for(job_id, "running", timeout_s=PATIENCE_S)
    host = host_of(plane, pool, job_id)

    plane.kill("worker")
    plane.kill("api")
    written = len(output_of(host))
    wait_until(lambda: len(output_of(host)) > written + 10, timeout_s=PATIENCE_S, description="the training goes on")
    assert agents(host)
    plane.start_api()
    plane.start_worker()

    gate_of(host).touch()
    plane.wait_for(job_id, "succeeded", timeout_s=PATIENCE_S)
    ticks = ticks_of(plane, job_id)
    assert ticks == list(range(len(ticks)))
    assert len(ticks) > written + 10


def test_a_shell_opens_in_the_job_s_folder_with_a_key_that_goes_with_the_job(plane: ControlPlane, pool: Pool) -> None:
    job_id = plane.submit(ticking())
    plane.wait_for(job_id, "running", timeout_s=PATIENCE_S)
    host = host_of(plane, pool, job_id)
    keys = host.folder / "root/.ssh/authorized_keys"
    before = keys.read_text()

    told = shunter(plane, "ssh", job_id, "--", "sh", "-c", "pwd; hostname; echo '; touch HIT'")
    during = keys.read_text()
    plane.cancel(job_id)
    plane.wait_for(job_id, "cancelled", timeout_s=PATIENCE_S)

    folder, name, hostile = told.stdout.splitlines()
    assert folder.startswith("/root/.shunter/nodes/shn-")
    assert (name, hostile) == (host.name, "; touch HIT")
    assert during.startswith(before)
    assert during.count("shunter-access:") == 1
    assert keys.read_text() == before


def test_nobody_opens_a_shell_where_there_is_no_node(plane: ControlPlane) -> None:
    job_id = plane.submit(plain("true"))
    plane.wait_for(job_id, "succeeded", timeout_s=PATIENCE_S)

    answer = plane.http("POST", f"/v1/jobs/{job_id}/shells", json={"public_key": "ssh-ed25519 " + "A" * 68})
    bad = plane.http("POST", f"/v1/jobs/{job_id}/shells", json={"public_key": 'command="x" ssh-ed25519 AAAA'})

    assert answer.status_code == 409
    assert bad.status_code == 422


def test_the_bundle_of_debug_holds_what_helps_and_no_secret(plane: ControlPlane, tmp_path: Path) -> None:
    planted = {"HF_TOKEN": "hf_plantedplantedplanted", "DB_PASSWORD": "correct-horse-battery"}
    script = "import os, time; print(dict(os.environ)); print('raised from', os.environ['DB_PASSWORD']); time.sleep(60)"
    job_id = plane.submit(plain(sys.executable, "-c", script, environment={"variables": planted}))
    plane.wait_for(job_id, "running", timeout_s=PATIENCE_S)
    wait_until(lambda: len(plane.lines(job_id)) >= 2, timeout_s=PATIENCE_S, description="the secret is in the log")
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
    plane.wait_for(job_id, "cancelled", timeout_s=PATIENCE_S)


def shunter(plane: ControlPlane, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line as a user runs it."""
    command = [sys.executable, "-m", "shunter", *arguments[:1], "--data-dir", str(plane.data_dir), *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done
