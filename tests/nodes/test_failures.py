"""What goes wrong with a gang over several hosts, and what becomes of the job each time."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from shunter_store.node import gang
from support import proc
from support.control_plane import TERMINAL, ControlPlane
from support.hosts import Host, Pool, lockstep
from support.hosts.gpus import set_gpus
from support.hosts.histories import (
    assert_nothing_is_left,
    assert_resumed_from_the_last_checkpoint,
    await_generation,
    committed,
    events_of,
    rows_of,
)
from support.hosts.plane import agents_on, instance, plane_on, ranks_on
from support.trainings import document
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.trainer, pytest.mark.timeout(600)]

TWO_HOSTS = {"nodes": 2, "gpus_per_node": 1}
LEASE_S = 12.0
PATIENCE_S = 150.0
"""For what takes moments on a quiet machine."""
GATE = "/root/gate"


@pytest.fixture(scope="module")
def plane(four_hosts: Pool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    hosts = four_hosts.hosts
    instances = {
        "pool": instance(hosts),
        "pair": instance(hosts[:2]),
        "leased": instance(hosts, lease_s=LEASE_S),
        "skewed": instance(hosts[:2], ahead_s={hosts[1].name: 3600.0}),
    }
    quick = {
        "SHUNTER_TIMING__UNREACHABLE_AFTER_S": "3",
        "SHUNTER_TIMING__STOP_GRACE_S": "10",
        "SHUNTER_PACE__QUIET_S": "0.5",
    }
    with plane_on(four_hosts, tmp_path_factory.mktemp("plane"), instances, **quick) as running:
        yield running


@pytest.fixture
def pool(four_hosts: Pool, plane: ControlPlane) -> Pool:
    """Every host as new, and nobody's."""
    four_hosts.reset()
    for job in plane.http("GET", "/v1/jobs", params={"limit": 50}).json()["items"]:
        if job["state"] not in TERMINAL:
            plane.cancel(job["id"])  # of a test that failed
    for host in four_hosts.hosts:
        (host.folder / GATE.lstrip("/")).unlink(missing_ok=True)
        set_gpus(host, 1)
    wait_until(
        lambda: not any((host.folder / "taken.json").exists() for host in four_hosts.hosts),
        timeout_s=PATIENCE_S,
        description="the hosts of the test before are given back",
    )
    for host in four_hosts.hosts:
        shutil.rmtree(host.seen("/srv/nodes"), ignore_errors=True)  # else the small disks are full some day
    return four_hosts


def training(provider: str = "pool") -> dict[str, Any]:
    """Two ranks on two hosts that train for ever and save each second."""
    members = {
        "duration": {"steps": 10_000_000},
        "checkpoint": {"every_s": 1.0, "keep": 2},
        "log_every_steps": 50,
        "schedule": {"kind": "constant"},
    }
    return {**document(**members), "resources": TWO_HOSTS, "placement": {"providers": [provider]}}


def counting(provider: str = "pool", **parts: Any) -> dict[str, Any]:
    """Two ranks on two hosts that count together until the gate opens."""
    return {
        "version": "1",
        "name": "counting",
        "workload": {
            "kind": "script",
            "launcher": "torch",
            "command": [sys.executable, str(Path(lockstep.__file__)), GATE],
        },
        "resources": TWO_HOSTS,
        "placement": {"providers": [provider]},
        **parts,
    }


def started(plane: ControlPlane, job: dict[str, Any]) -> str:
    """A job whose ranks have met and run, with a checkpoint where it is a training."""
    job_id = plane.submit(job)
    await_generation(plane, job_id, 1)
    if job["workload"]["kind"] == "training":
        wait_until(lambda: committed(plane, job_id), timeout_s=PATIENCE_S, description="a checkpoint is committed")
    else:
        await_tick(plane, job_id)
    return job_id


def await_tick(plane: ControlPlane, job_id: str) -> None:
    """The counting ranks have met."""
    wait_until(lambda: any("tick" in line for line in plane.lines(job_id)), timeout_s=PATIENCE_S, description="a tick")


def ticks_of(plane: ControlPlane, job_id: str, rank: int, generation: int = 1) -> list[int]:
    """What a counting rank wrote in one generation, as far as it is here."""
    query = {"generation": generation, "rank": rank, "limit": 1000}
    items = plane.http("GET", f"/v1/jobs/{job_id}/logs", params=query).json()["items"]
    return [int(line["text"].split()[1]) for line in items if line["text"].startswith("tick")]


def open_gate(plane: ControlPlane, pool: Pool, job_id: str) -> dict[str, Any]:
    """Let the counting ranks end."""
    for host in pool.hosts:
        (host.folder / GATE.lstrip("/")).touch()
    return plane.wait_for(job_id, "succeeded", timeout_s=PATIENCE_S)


def end(plane: ControlPlane, pool: Pool, job_id: str) -> None:
    """Cancel a training; nothing of it may be left."""
    plane.cancel(job_id)
    plane.wait_for(job_id, "cancelled", timeout_s=PATIENCE_S)
    assert_nothing_is_left(plane, pool, job_id)


def host_of(plane: ControlPlane, pool: Pool, job_id: str, rank: int) -> Host:
    """The host of the newest node with this rank, once a listing has shown where that is."""

    def name() -> str | None:
        return [row for row in rows_of(plane, job_id) if row.rank == rank][-1].addresses.get("machine")

    wait_until(name, timeout_s=PATIENCE_S, description=f"a listing shows the node of rank {rank}")
    return next(host for host in pool.hosts if host.name == name())


@contextmanager
def paused(pids: list[int]) -> Iterator[None]:
    """These processes do nothing meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_killed_rank_has_all_ranks_start_again_and_costs_no_node(plane: ControlPlane, pool: Pool) -> None:
    job_id = started(plane, counting())
    other, host = (host_of(plane, pool, job_id, rank) for rank in (0, 1))

    with paused(agents_on(other)):  # which may be the first to tell that a peer is gone
        os.kill(ranks_on(host)[0], signal.SIGKILL)
        wait_until(lambda: events_of(plane, job_id, "job.recovering"), timeout_s=PATIENCE_S, description="it is told")

    await_generation(plane, job_id, 2)
    assert len(rows_of(plane, job_id)) == 2, "both nodes are kept"
    (lost,) = events_of(plane, job_id, "job.recovering")
    assert (lost["reason"], "rank 1 was killed by SIGKILL" in lost["message"]) == ("signal", True)
    open_gate(plane, pool, job_id)
    assert_nothing_is_left(plane, pool, job_id)


def test_a_host_that_loses_its_power_is_replaced_and_the_other_one_is_kept(plane: ControlPlane, pool: Pool) -> None:
    job_id = started(plane, training())
    kept, dead = (host_of(plane, pool, job_id, rank) for rank in (0, 1))
    agent = agents_on(kept)

    dead.power_off()

    met = await_generation(plane, job_id, 2)
    assert_resumed_from_the_last_checkpoint(plane, job_id, 2)
    assert {node["address"] for node in met["nodes"]} > {kept.address}
    assert dead.address not in {node["address"] for node in met["nodes"]}
    assert agents_on(kept) == agent, "the same agent, with its environment and data"
    assert len(rows_of(plane, job_id)) == 3
    end(plane, pool, job_id)


@pytest.mark.nightly
def test_a_gang_without_a_spare_host_goes_on_with_fewer_gpus(plane: ControlPlane, pool: Pool) -> None:
    job_id = started(plane, {**training("pair"), "recovery": {"min_gpus": 1}})
    kept, dead = (host_of(plane, pool, job_id, rank) for rank in (1, 0))

    dead.power_off()

    wait_until(lambda: events_of(plane, job_id, "job.resized"), timeout_s=300, description="fewer will do")
    wait_until(lambda: len(ranks_on(kept)) == 1, timeout_s=60, description="one rank trains")
    wait_until(lambda: plane.job(job_id)["state"] == "running", timeout_s=60, description="it runs")
    (resized,) = events_of(plane, job_id, "job.resized")
    assert resized["message"] == "going on with 1 GPUs instead of 2"
    (left,) = [row for row in rows_of(plane, job_id) if row.state == "ready"]
    assert left.rank == 0
    assert left.assignment is not None
    assert (left.assignment["ranks"]["world_size"], left.assignment["resume"]["generation"]) == (1, 1)
    end(plane, pool, job_id)


def test_a_link_that_is_cut_for_less_than_the_lease_is_a_pause(plane: ControlPlane, pool: Pool) -> None:
    job_id = started(plane, counting())
    host = host_of(plane, pool, job_id, 1)

    host.cut_link()
    wait_until(
        lambda: plane.job(job_id)["health"] == "unreachable", timeout_s=PATIENCE_S, description="silence is noticed"
    )
    host.restore_link()

    wait_until(lambda: plane.job(job_id)["health"] == "ok", timeout_s=PATIENCE_S, description="it is back")
    job = open_gate(plane, pool, job_id)
    assert job["generation"] == 1
    assert_nothing_is_left(plane, pool, job_id)


def test_a_link_that_is_cut_for_longer_than_the_lease_costs_the_node(plane: ControlPlane, pool: Pool) -> None:
    job_id = started(plane, counting("leased"))
    host = host_of(plane, pool, job_id, 1)
    wait_until(lambda: len(ticks_of(plane, job_id, 1)) > 3, timeout_s=PATIENCE_S, description="its output is here")
    synced = ticks_of(plane, job_id, 1)

    host.cut_link()

    wait_until(lambda: not ranks_on(host), timeout_s=PATIENCE_S, description="the node has stopped its ranks by itself")
    met = await_generation(plane, job_id, 2)
    assert host.address not in {node["address"] for node in met["nodes"]}
    assert [event["reason"] for event in events_of(plane, job_id, "job.recovering")] == ["node_silent"]
    kept = ticks_of(plane, job_id, 1)
    assert kept[: len(synced)] == synced
    assert kept == list(range(1, len(kept) + 1)), "the output of the lost node is whole up to its last exchange"
    host.restore_link()
    open_gate(plane, pool, job_id)
    assert_nothing_is_left(plane, pool, job_id)


def test_nodes_whose_service_is_gone_for_longer_than_the_lease_save_and_stop(plane: ControlPlane, pool: Pool) -> None:
    job_id = started(plane, training("leased"))
    hosts = [host_of(plane, pool, job_id, rank) for rank in (0, 1)]
    before = committed(plane, job_id)[-1]

    for role in ("api", "worker"):
        plane.kill(role)

    wait_until(lambda: not any(map(ranks_on, hosts)), timeout_s=PATIENCE_S, description="the nodes stop by themselves")
    assert all(agents_on(host) for host in hosts), "agents wait to tell of it"
    back_at = datetime.now(UTC)
    plane.start_api()
    wait_until(
        lambda: all(row.last_sync_at and row.last_sync_at > back_at for row in rows_of(plane, job_id)),
        timeout_s=PATIENCE_S,
        description="both nodes have told of it before anybody judges their silence",
    )
    plane.start_worker()
    await_generation(plane, job_id, 2)
    assert committed(plane, job_id)[-1] > before, "they saved before they stopped"
    assert_resumed_from_the_last_checkpoint(plane, job_id, 2)
    assert len(rows_of(plane, job_id)) == 2
    end(plane, pool, job_id)


def test_a_preemption_notice_saves_a_checkpoint_first(plane: ControlPlane, pool: Pool) -> None:
    job_id = started(plane, training())
    host = host_of(plane, pool, job_id, 1)
    before = committed(plane, job_id)[-1]

    os.kill(agents_on(host)[0], signal.SIGTERM)

    await_generation(plane, job_id, 2)
    assert_resumed_from_the_last_checkpoint(plane, job_id, 2)
    assert committed(plane, job_id)[-1] > before
    with plane.database() as database:
        ends = database.read(lambda conn: gang.ends(conn, job_id))
    assert "interrupted" in {end.reason for end in ends if end.generation == 1}
    end(plane, pool, job_id)


def test_a_host_whose_disk_is_full_is_replaced(plane: ControlPlane, pool: Pool) -> None:
    job_id = started(plane, training())
    host = host_of(plane, pool, job_id, 1)

    host.fill_disk()

    wait_until(
        lambda: host.address not in {node["address"] for node in events_of(plane, job_id, "gang.met")[-1]["nodes"]},
        timeout_s=PATIENCE_S,
        description="a gang without the full host has met",  # its peer may be the first to fail: one try more
    )
    (*_, met) = events_of(plane, job_id, "gang.met")
    await_generation(plane, job_id, met["generation"])
    assert_resumed_from_the_last_checkpoint(plane, job_id, met["generation"])
    end(plane, pool, job_id)


def test_a_host_with_less_than_was_offered_is_refused_and_passed_over(plane: ControlPlane, pool: Pool) -> None:
    set_gpus(pool.hosts[0], 0)

    job_id = started(plane, counting())

    (refused,) = events_of(plane, job_id, "node.refused")
    assert refused["machine"] == "node0"
    assert "0 GPUs of 1" in refused["detail"]
    (met,) = events_of(plane, job_id, "gang.met")
    assert {node["address"] for node in met["nodes"]} == {host.address for host in pool.hosts[1:3]}
    open_gate(plane, pool, job_id)
    assert_nothing_is_left(plane, pool, job_id)


def test_a_host_behind_a_firewall_is_named_and_passed_over(plane: ControlPlane, pool: Pool) -> None:
    pool.hosts[1].firewall("tcp dport 20000-65535 ct state new drop")

    job_id = started(plane, counting())

    (refused,) = events_of(plane, job_id, "node.refused")
    zero, one = pool.hosts[:2]
    assert refused["machine"] == one.name
    assert f"node 0 ({zero.address}) cannot reach node 1: {one.address} port" in refused["detail"]
    assert "(rendezvous): no answer" in refused["detail"]
    (met,) = events_of(plane, job_id, "gang.met")
    assert one.address not in {node["address"] for node in met["nodes"]}
    open_gate(plane, pool, job_id)
    assert_nothing_is_left(plane, pool, job_id)


def test_torchrun_spans_hosts_and_a_lost_half_hangs_nobody(plane: ControlPlane, pool: Pool) -> None:
    job = counting()
    job["workload"] = {
        "kind": "script",
        "launcher": "torchrun",
        "entrypoint": "lockstep",
        "module": True,
        "arguments": [GATE],
    }
    job["environment"] = {"variables": {"PYTHONPATH": str(Path(lockstep.__file__).parent)}}
    job_id = started(plane, job)

    (launcher,) = [pid for pid in ranks_on(host_of(plane, pool, job_id, 1)) if _is_launcher(pid)]
    os.kill(launcher, signal.SIGKILL)

    await_generation(plane, job_id, 2)
    open_gate(plane, pool, job_id)
    assert_nothing_is_left(plane, pool, job_id)


def test_a_wrong_clock_is_told_of_and_harms_nothing(plane: ControlPlane, pool: Pool) -> None:
    job_id = started(plane, counting("skewed"))

    skews = {skew["node_rank"]: skew["skew_s"] for skew in events_of(plane, job_id, "node.clock_skew")}

    assert skews.pop(1) == pytest.approx(3600, abs=120)
    assert all(abs(skew_s) < 120 for skew_s in skews.values()), "no more than a slow exchange explains"
    job = open_gate(plane, pool, job_id)
    assert job["generation"] == 1
    assert_nothing_is_left(plane, pool, job_id)


def _is_launcher(pid: int) -> bool:
    with suppress(OSError):
        return b"torch.distributed.run" in Path(f"/proc/{pid}/cmdline").read_bytes() and proc.lives(pid)
    return False
