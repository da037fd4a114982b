"""The pods of a cluster: what they ask for, where they go, and who says so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from shunter_providers.contract import (
    Fault,
    NodeCondition,
)
from support.clouds.kube_account import LAUNCH, TOKEN, an_intent, error_of, kubernetes, orders
from support.clouds.kube_scheduler import node
from support.clouds.kubernetes import GPU_TAINT, KubernetesCluster, unschedulable


@pytest.fixture
def cluster() -> Iterator[KubernetesCluster]:
    with KubernetesCluster(TOKEN) as running:
        yield running


async def test_the_pod_asks_for_what_was_offered_mounts_no_token_and_runs_the_agent_itself(
    cluster: KubernetesCluster,
) -> None:
    provider = kubernetes(cluster)
    await provider.create(await an_intent(provider, image="registry.example/train:1"))
    await provider.close()

    spec = orders(cluster)[0]["spec"]

    (container,) = spec["containers"]
    assert container["image"] == "registry.example/train:1"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert container["resources"]["requests"]["cpu"] == "115"
    assert "cpu" not in container["resources"]["limits"]
    assert container["command"][2].endswith("exec python3 agent.pyz run --dir .")
    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"
    assert spec["volumes"][2]["emptyDir"]["medium"] == "Memory"
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert "hostNetwork" not in spec


async def test_the_launch_comes_in_a_secret_and_nothing_of_it_stands_in_the_pod(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster)
    launch = replace(LAUNCH, files={"launch.json": b'{"sync_token": "do-not-show"}'})
    token = await provider.create(await an_intent(provider, launch=launch))
    await provider.close()

    (secret,) = cluster.secrets.values()

    assert secret["metadata"]["name"] == token
    assert "do-not-show" not in str(orders(cluster))


async def test_operators_and_jobs_say_where_pods_go_and_what_they_get(cluster: KubernetesCluster) -> None:
    settings = {
        "host_network": True,
        "service_account": "trainer",
        "mounts_token": True,
        "image_pull_secrets": ["registry"],
        "labels": {"team": "nlp"},
        "annotations": {"example.com/note": "hello"},
        "environment": {"NCCL_DEBUG": "INFO"},
        "limits": "all",
        "capabilities": ["IPC_LOCK"],
        "scheduler": "volcano",
    }
    options = {
        "priority_class": "high",
        "tolerations": [{"key": "team", "value": "nlp", "operator": "Equal"}],
        "node_selector": {"rack": "b"},
        "shared_memory_gib": 16,
        "disk_gib": 200,
        "image_pull_secrets": ["mine"],
    }
    provider = kubernetes(cluster, **settings)
    await provider.create(await an_intent(provider, options=options, expires_at=time.time() + 7200))
    await provider.close()

    (order,) = orders(cluster)

    spec, container = order["spec"], order["spec"]["containers"][0]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("trainer", True)
    assert spec["imagePullSecrets"] == [{"name": "registry"}, {"name": "mine"}]
    assert (spec["priorityClassName"], spec["schedulerName"], spec["nodeSelector"]) == (
        "high",
        "volcano",
        {"rack": "b"},
    )
    assert 7100 < spec["activeDeadlineSeconds"] <= 7200
    assert spec["volumes"][2]["emptyDir"]["sizeLimit"] == "16384Mi"
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert container["resources"]["requests"]["ephemeral-storage"] == "200Gi"
    assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in container["env"]
    assert order["metadata"]["labels"]["team"] == "nlp"
    assert order["metadata"]["annotations"]["example.com/note"] == "hello"
    assert order["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert [machine.order["spec"]["nodeName"] for machine in cluster.nodes()] == ["gpu-3"]


async def test_an_end_that_is_further_away_than_the_api_can_say_is_the_last_that_it_can(
    cluster: KubernetesCluster,
) -> None:
    provider = kubernetes(cluster)
    await provider.create(await an_intent(provider, expires_at=time.time() + 200 * 365 * 86_400))
    await provider.close()

    (order,) = orders(cluster)

    assert order["spec"]["activeDeadlineSeconds"] == 2**31 - 1


async def test_a_pod_without_root_keeps_to_the_restricted_standard(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster, run_as_user=1000)
    await provider.create(await an_intent(provider, "2x c4.large"))
    await provider.close()

    spec = orders(cluster)[0]["spec"]

    assert spec["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "fsGroup": 1000,
    }
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in spec["containers"][0]["env"]


async def test_a_gang_stands_in_one_rack_and_what_does_not_fit_there_is_not_counted(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster, gang_topology="rack")
    first = await an_intent(provider, gang_size=2, tags={"job": "job_ABC"})
    second = replace(first, token=f"{first.token}b", rank=1)
    alone = replace(first, token=f"{first.token}c", gang_size=1, tags={"job": "job_other"})
    for intent in (first, second, alone):
        await provider.create(intent)
    await provider.close()

    placed = {machine.name: machine.order["spec"].get("nodeName") for machine in cluster.nodes()}

    assert (first.offer.count, first.offer.fabric) == (2, "a")
    assert {placed[first.token], placed[second.token]} == {"gpu-1", "gpu-2"}
    assert placed[alone.token] == "gpu-3"


async def test_the_first_of_a_gang_goes_where_the_others_have_room(cluster: KubernetesCluster) -> None:
    cluster.cluster_nodes = [*cluster.cluster_nodes[::-1]]
    provider = kubernetes(cluster, gang_topology="rack")
    first = await an_intent(provider, gang_size=2, tags={"job": "job_ABC"})
    for intent in (first, replace(first, token=f"{first.token}b", rank=1)):
        await provider.create(intent)
    await provider.close()

    assert {machine.order["spec"]["nodeName"] for machine in cluster.nodes()} == {"gpu-1", "gpu-2"}


async def test_nodes_without_any_label_of_their_kind_are_used_too(cluster: KubernetesCluster) -> None:
    cluster.cluster_nodes = [node("bare", "", 8, 32), node("dark", "", 32, 128, gpus=2, taints=[GPU_TAINT])]
    provider = kubernetes(cluster)
    for kind in ("4x node", "2x GPU"):
        await provider.create(await an_intent(provider, kind))
    await provider.close()

    assert [machine.order["spec"].get("nodeName") for machine in cluster.nodes()] == ["bare", "dark"]


async def test_a_queue_lets_a_gang_in_together(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster, gang_topology="rack", queue="research")
    intent = await an_intent(provider, gang_size=2, tags={"job": "job_ABC"})
    await provider.create(intent)
    (order,) = orders(cluster)
    cluster.states[intent.token] = unschedulable(time.time() - 500, "gated", reason="SchedulingGated")

    view = await provider.get(intent.token)

    await provider.close()
    assert order["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert order["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] == "job-abc"
    assert order["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "2"
    assert order["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] == "rack"
    assert "podAffinity" not in order["spec"]["affinity"]
    assert view.condition is NodeCondition.QUEUED


async def test_machines_that_a_job_avoids_get_none_of_its_pods(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster)
    await provider.create(await an_intent(provider, avoid=("gpu-1", "gpu-2")))
    await provider.close()

    assert [machine.order["spec"]["nodeName"] for machine in cluster.nodes()] == ["gpu-3"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"node_selektor": {}}, "node_selektor"),
        ({"tolerations": [{"operator": "Equal"}]}, "tolerations.0"),
        ({"node_selector": {"a b": "c"}}, "node_selector.a b"),
        ({"disk_gib": -1}, "disk_gib"),
    ],
)
async def test_a_wrong_option_of_a_job_is_named_and_nothing_is_made(
    cluster: KubernetesCluster, options: dict[str, Any], named: str
) -> None:
    provider = kubernetes(cluster)

    error = await error_of(provider, await an_intent(provider, options=options))

    await provider.close()
    assert error.fault is Fault.INVALID
    assert f"placement.options.kubernetes.{named}" in error.detail
    assert cluster.nodes() == []
    assert cluster.secrets == {}


async def test_a_launch_too_large_for_a_secret_is_refused_before_anything_is_made(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster)
    launch = replace(LAUNCH, files={"agent.pyz": bytes(1 << 20), "launch.json": b"{}"})

    error = await error_of(provider, await an_intent(provider, launch=launch))

    await provider.close()
    assert error.fault is Fault.INVALID
    assert cluster.secrets == {}
