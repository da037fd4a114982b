"""Jobs on clusters, through the whole control plane: real workers, HTTP as the kube API has it, real agents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from shunter_providers.testing.booting import Boots
from support.clouds.kubernetes import KubernetesCluster
from support.control_plane import ControlPlane, control_plane, plain
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

REACHABLE = "127.0.0.2"
"""Pods are told an address; the plane's own loopback address is only for nodes that share its files."""


class World(NamedTuple):
    """A control plane with two clusters, of which one is full and does not show it."""

    plane: ControlPlane
    roomy: KubernetesCluster
    full: KubernetesCluster

    def is_empty(self) -> bool:
        """No pod and no secret is left."""
        return all(one.nodes() == [] and one.secrets == {} for one in (self.roomy, self.full))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with ExitStack() as stack:
        clusters = {
            name: stack.enter_context(KubernetesCluster(f"the-token-of-{name}", boots=Boots(folder / name)))
            for name in ("roomy", "full")
        }
        clusters["full"].forbidden = {("list", "cluster-pods")}
        clusters["full"].other_pods = [taking_all_of(one) for one in clusters["full"].cluster_nodes]
        providers = {name: configured(cluster) for name, cluster in clusters.items()}
        variables = {"SHUNTER_PROVIDERS": json.dumps(providers)}
        plane = stack.enter_context(control_plane(folder / "data", REACHABLE, **variables))
        yield World(plane, clusters["roomy"], clusters["full"])


def configured(cluster: KubernetesCluster) -> dict[str, Any]:
    settings = {"server": cluster.url, "token": cluster.token, "namespace": "training", "timeout_s": 10}
    quick = {"scan_interval_s": 1.0, "visibility_delay_s": 0.5, "unschedulable_after_s": 1.0}
    return {"plugin": "kubernetes", "settings": {**settings, **quick}}


def taking_all_of(node: dict[str, Any]) -> dict[str, Any]:
    """A pod of somebody else."""
    name = node["metadata"]["name"]
    requests = {"cpu": node["status"]["allocatable"]["cpu"]}
    spec = {"nodeName": name, "containers": [{"resources": {"requests": requests}}]}
    return {"metadata": {"name": f"greedy-{name}"}, "spec": spec, "status": {"phase": "Running"}}


def test_a_job_runs_on_a_real_agent_in_a_pod_and_leaves_neither_pod_nor_secret(world: World) -> None:
    job_id = world.plane.submit(plain("echo", "in a pod", placement={"providers": ["roomy"]}))

    job = world.plane.wait_for(job_id, "succeeded", timeout_s=150)

    wait_until(world.is_empty, timeout_s=60, description="the clusters are empty")
    assert world.plane.lines(job_id) == ["in a pod"]
    assert [(node["provider"], node["state"]) for node in job["nodes"]] == [("roomy", "gone")]


def test_a_job_whose_pod_finds_no_node_says_so_in_the_schedulers_words_and_runs_when_there_is_room(
    world: World,
) -> None:
    job_id = world.plane.submit(plain("echo", "at last", placement={"providers": ["full"]}))
    wait_until(lambda: refusals(world, job_id) != [], timeout_s=120, description="the scheduler's words are known")
    world.full.other_pods = []

    world.plane.wait_for(job_id, "succeeded", timeout_s=150)

    wait_until(world.is_empty, timeout_s=60, description="the clusters are empty")
    assert "no capacity: 0/5 nodes are available" in refusals(world, job_id)[0]
    assert "Insufficient cpu" in refusals(world, job_id)[0]


def refusals(world: World, job_id: str) -> list[str]:
    events = world.plane.events(job_id)
    return [event["data"]["detail"] for event in events if event["type"] == "job.capacity_lost"]
