"""What the scheduler, the kubelet and the API say of pods, in words of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.kubernetes.words import view
from shunter_providers.contract import (
    Fault,
    NodeCondition,
    NodeView,
    ProviderError,
    Scope,
)
from shunter_providers.testing import CloudFault
from shunter_providers.testing.conformance import wait_for
from support.clouds.kube_account import TOKEN, an_intent, error_of, kubernetes
from support.clouds.kubernetes import KubernetesCluster, status, waiting


@pytest.fixture
def cluster() -> Iterator[KubernetesCluster]:
    with KubernetesCluster(TOKEN) as running:
        yield running


async def test_a_pod_that_finds_no_node_has_failed_for_want_of_room_when_its_time_is_over(
    cluster: KubernetesCluster,
) -> None:
    patient, hasty = kubernetes(cluster, unschedulable_after_s=3600), kubernetes(cluster, unschedulable_after_s=0)
    intent = await an_intent(patient)
    cluster.cluster_nodes = cluster.cluster_nodes[:2]
    handle = await patient.create(intent)

    waits, fails = await patient.get(handle), await hasty.get(handle)

    await patient.close()
    await hasty.close()
    assert waits.condition is NodeCondition.QUEUED
    assert "0/2 nodes are available" in waits.reason
    assert (fails.condition, fails.fault, fails.scope) == (NodeCondition.FAILED, Fault.NO_CAPACITY, Scope.OFFER)
    assert fails.reason.startswith("no capacity: 0/2 nodes are available: 2 node(s) didn't match")


@pytest.mark.parametrize(
    ("reason", "message", "fault"),
    [
        ("ErrImagePull", "manifest unknown: manifest unknown", Fault.INVALID),
        ("InvalidImageName", "couldn't parse image name", Fault.INVALID),
        ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", Fault.INVALID),
        ("StartError", 'exec: "sh": executable file not found in $PATH', Fault.INVALID),
        ("StartError", "nvidia-container-cli: initialization error: driver not loaded", None),
        ("ErrImagePull", "dial tcp: i/o timeout", None),
    ],
)
def test_what_is_wrong_with_an_image_is_told_from_what_is_wrong_with_a_machine(
    reason: str, message: str, fault: Fault | None
) -> None:
    pod = {"spec": {"containers": [{"image": "acme/train:1"}]}}

    job_s, own = (of_pod(waiting(reason, message), own_image=image, **pod) for image in ("other", "acme/train:1"))

    assert (job_s.fault, own.fault) == (fault, fault)
    assert job_s.scope is Scope.OFFER
    assert own.scope is (Scope.ACCOUNT if fault else Scope.OFFER)


@pytest.mark.parametrize(
    ("reason", "message", "condition"),
    [
        ("ErrImagePull", "manifest unknown: manifest unknown", NodeCondition.FAILED),
        ("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: pull access denied', NodeCondition.FAILED),
        ("InvalidImageName", 'couldn\'t parse image name "A B"', NodeCondition.FAILED),
        ("CreateContainerConfigError", 'secret "registry" not found', NodeCondition.FAILED),
        ("CreateContainerError", "context deadline exceeded", NodeCondition.PENDING),
        ("ErrImagePull", "dial tcp: i/o timeout", NodeCondition.PENDING),
        ("ImagePullBackOff", "toomanyrequests: rate exceeded", NodeCondition.PENDING),
        ("ContainerCreating", "", NodeCondition.PENDING),
    ],
)
def test_an_image_that_will_never_come_is_told_from_one_that_is_late(
    reason: str, message: str, condition: NodeCondition
) -> None:
    shown = of_pod(waiting(reason, message))

    assert shown.condition is condition
    assert reason in shown.reason
    assert message in shown.reason


@pytest.mark.parametrize(
    ("shows", "condition", "said"),
    [
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
            NodeCondition.FAILED,
            "evicted by its node: The node was low on resource",
        ),
        (
            {
                "phase": "Failed",
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
            },
            NodeCondition.FAILED,
            "its node is drained",
        ),
        (
            {"phase": "Failed", "reason": "NodeShutdown", "message": "Pod was terminated in response to imminent"},
            NodeCondition.FAILED,
            "its node was shut down",
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}],
            },
            NodeCondition.FAILED,
            "it ran out of memory",
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [
                    {"state": {"terminated": {"exitCode": 127, "reason": "Error", "message": "sh: python3: not found"}}}
                ],
            },
            NodeCondition.FAILED,
            "its program ended with 127: sh: python3: not found",
        ),
        ({"phase": "Succeeded"}, NodeCondition.STOPPED, ""),
        ({"phase": "Unknown"}, NodeCondition.UNKNOWN, "does not answer"),
    ],
)
def test_how_a_pod_ended_is_said_in_words(shows: dict[str, Any], condition: NodeCondition, said: str) -> None:
    shown = of_pod(shows)

    assert shown.condition is condition
    assert said in shown.reason


def of_pod(shows: dict[str, Any], *, own_image: str = "", **more: Any) -> NodeView:
    """With this status."""
    pod = {"metadata": {"name": "shn-abcdef-zzzz"}, "spec": {}, "status": shows, **more}
    return view(Fields(pod, "pod"), 1.0, 60.0, own_image)


async def test_a_pod_that_somebody_drains_is_known_while_it_still_saves(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster)
    handle = await provider.create(await an_intent(provider))
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    disrupted = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API",
    }
    cluster.states[handle] = {"phase": "Running", "conditions": [disrupted]}
    cluster.machines.end_s = 60.0
    await provider.terminate(handle)

    shown = await provider.get(handle)

    await provider.close()
    assert shown.condition is NodeCondition.STOPPED
    assert shown.reason == "it is being ended: evicted: its node is drained: Eviction API"


@pytest.mark.parametrize(
    ("reply", "fault", "scope"),
    [
        (
            status(403, "Forbidden", 'pods "a" is forbidden: violates PodSecurity "restricted:latest": root'),
            Fault.INVALID,
            Scope.OFFER,
        ),
        (
            status(400, "BadRequest", 'admission webhook "images.example.com" denied the request: not our registry'),
            Fault.INVALID,
            Scope.OFFER,
        ),
        (
            status(403, "Forbidden", 'pods "a" is forbidden: no PriorityClass with name high was found'),
            Fault.INVALID,
            Scope.OFFER,
        ),
        (
            status(403, "Forbidden", 'pods "a" is forbidden: maximum cpu usage per Pod is 4, but request is 8'),
            Fault.QUOTA,
            Scope.OFFER,
        ),
        (
            status(
                403, "Forbidden", "unable to create new content in namespace training because it is being terminated"
            ),
            Fault.TRANSIENT,
            Scope.ACCOUNT,
        ),
        (
            status(500, "InternalError", 'Internal error occurred: failed calling webhook "k": connection refused'),
            Fault.TRANSIENT,
            Scope.ACCOUNT,
        ),
    ],
)
async def test_what_refuses_a_pod_is_told_by_its_name_and_leaves_no_secret(
    cluster: KubernetesCluster, reply: Any, fault: Fault, scope: Scope
) -> None:
    provider = kubernetes(cluster)
    intent = await an_intent(provider)
    cluster.denied = reply

    error = await error_of(provider, intent)

    await provider.close()
    assert (error.fault, error.scope, error.may_have_created) == (fault, scope, False)
    assert reply.body["message"] in error.detail
    assert cluster.secrets == {}


@pytest.mark.parametrize(
    ("verb", "resource"), [("create", "pods"), ("create", "secrets"), ("list", "pods"), ("list", "secrets")]
)
async def test_a_right_that_is_lacking_is_named(cluster: KubernetesCluster, verb: str, resource: str) -> None:
    provider = kubernetes(cluster)
    intent = await an_intent(provider)
    cluster.forbidden = {(verb, resource)}

    with pytest.raises(ProviderError) as refused:
        await (provider.create(intent) if verb == "create" else provider.whoami())

    await provider.close()
    assert refused.value.fault is Fault.AUTH
    assert f'cannot {verb} resource "{resource}"' in refused.value.detail


async def test_a_quota_is_known_and_the_secret_goes_too(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster)
    intent = await an_intent(provider)
    cluster.strike(CloudFault.QUOTA)

    error = await error_of(provider, intent)

    await provider.close()
    assert (error.fault, error.scope) == (Fault.QUOTA, Scope.OFFER)
    assert "exceeded quota: gpus" in error.detail
    assert cluster.secrets == {}
