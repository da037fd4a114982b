"""Gangs over several hosts train what one process trains, under every strategy that spans nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import gang_program
from support.control_plane import ControlPlane
from support.gangs import Trained, Training, train_all
from support.hosts import Host, Pool
from support.hosts.gpus import set_gpus
from support.hosts.histories import assert_nothing_is_left
from support.hosts.plane import instance, plane_on
from support.parity import TOLERANCE
from support.trainings import document

pytestmark = [pytest.mark.slow, pytest.mark.trainer, pytest.mark.timeout(900)]

STEPS = 12
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"kind": "ddp"},
    "fsdp": {"kind": "fsdp"},
    "hsdp": {"kind": "hsdp", "shard_size": "node"},
    "zero-2": {"kind": "deepspeed", "zero_stage": 2},
    "zero-3": {"kind": "deepspeed", "zero_stage": 3},
}
FOLDER = "/root/parity"


@pytest.fixture(scope="module")
def plane(four_hosts: Pool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    hosts = four_hosts.hosts
    instances = {
        "pairs": instance(hosts[:2], gpus=2),
        "singles": instance(hosts),
    }
    for host in hosts:
        set_gpus(host, 2)
    with plane_on(four_hosts, tmp_path_factory.mktemp("plane"), instances) as running:
        yield running


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of the same training in one process."""
    trained = train_all(tmp_path_factory.mktemp("reference"), 1, [training("ddp", 1)])
    return trained["ddp"].losses


def training(name: str, world_size: int) -> Training:
    """Accumulation over two micro-batches, and clipping that bites."""
    members: dict[str, Any] = {
        "batch": {"global_size": 16, "micro_size": 16 // world_size // 2},
        "duration": {"steps": STEPS},
        "checkpoint": {"every_s": 3600, "keep": 1},
    }
    return Training(name, {**document(**members), "strategy": STRATEGIES[name]})


def lay_out(hosts: list[Host], folder: Path) -> None:
    """What the program of the ranks reads, on each host."""
    for host in hosts:
        here = host.folder / folder.relative_to("/")
        for name in STRATEGIES:
            (here / name).mkdir(parents=True)
            (here / name / "document.json").write_text(json.dumps(training(name, 4).document))
        (here / "plan.json").write_text(json.dumps([training(name, 4).as_json(folder) for name in STRATEGIES]))


def gang(provider: str, num_nodes: int, folder: Path) -> dict[str, Any]:
    """A job of four ranks that train one strategy after the other."""
    command = [sys.executable, str(Path(gang_program.__file__)), str(folder / "plan.json")]
    return {
        "version": "1",
        "name": "parity",
        "workload": {"kind": "script", "launcher": "torch", "command": command},
        "resources": {"nodes": num_nodes, "gpus_per_node": 4 // num_nodes},
        "placement": {"providers": [provider]},
        "environment": {"variables": {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}},
    }


@pytest.mark.parametrize(("provider", "num_nodes"), [("pairs", 2), ("singles", 4)])
def test_every_strategy_learns_over_hosts_what_one_process_learns(
    plane: ControlPlane, four_hosts: Pool, reference: dict[int, float], provider: str, num_nodes: int
) -> None:
    folder = Path(FOLDER, provider)
    lay_out(four_hosts.hosts[:num_nodes], folder)

    job_id = plane.submit(gang(provider, num_nodes, folder))

    plane.wait_for(job_id, "succeeded", timeout_s=500)
    first = four_hosts.hosts[0].folder / folder.relative_to("/")
    apart = {name: _apart(Trained(first / name).losses, reference) for name in STRATEGIES}
    assert all(difference <= TOLERANCE["fp32"] for difference in apart.values()), apart
    (met,) = [event["data"] for event in plane.events(job_id) if event["type"] == "gang.met"]
    addresses = {host.address for host in four_hosts.hosts[:num_nodes]}
    assert {node["address"] for node in met["nodes"]} == addresses
    assert {node["interface"] for node in met["nodes"]} == {"eth0"}
    assert len(met["links"]) == num_nodes
    assert all(link["gbit_per_s"] > 0 for link in met["links"])
    assert_nothing_is_left(plane, four_hosts, job_id)


def _apart(losses: dict[int, float], reference: dict[int, float]) -> float:
    assert list(losses) == list(reference) == list(range(1, STEPS + 1))
    return max(abs(losses[step] - reference[step]) for step in reference)
