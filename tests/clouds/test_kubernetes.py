"""A cluster against a fake of the kube API: the whole kit, its offers, and what is made and left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.kubernetes.nodes import kinds_of, offers_of
from shunter_providers.clouds.kubernetes.settings import KubernetesSettings
from shunter_providers.contract import (
    Availability,
    Fault,
    NodeCondition,
    OfferQuery,
    Price,
    Provider,
    ProviderError,
)
from shunter_providers.testing import CloudConformance, WireCloud, make_intent
from shunter_providers.testing.conformance import until_terminated
from shunter_schemas.ids import new_deployment_id
from support.clouds.kube_account import LAUNCH, TOKEN, an_intent, error_of, kubernetes
from support.clouds.kube_scheduler import node
from support.clouds.kubernetes import KubernetesCluster, moment


@pytest.fixture
def cluster() -> Iterator[KubernetesCluster]:
    with KubernetesCluster(TOKEN) as running:
        yield running


FREE = Price(billed=False)


class TestKubernetes(CloudConformance):
    profile = "container"

    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with KubernetesCluster(TOKEN) as running:
            yield running

    @pytest.fixture
    def provider(self, cloud: WireCloud) -> Provider:
        return kubernetes(cloud)


async def test_offers_are_parts_of_nodes_with_what_is_free_of_each(cluster: KubernetesCluster) -> None:
    held = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "6", "cpu": "500m"}}}], "nodeName": "gpu-1"}
    cluster.other_pods = [{"metadata": {"name": "other"}, "spec": held, "status": {"phase": "Running"}}]
    provider = kubernetes(cluster, jurisdictions={"eu-de-*": "DE"})

    offers = {offer.instance_type: offer for offer in await provider.offers(OfferQuery())}

    await provider.close()
    assert {name: offer.count for name, offer in offers.items() if offer.gpus} == {
        "1x h100.8x": 18,
        "2x h100.8x": 9,
        "4x h100.8x": 4,
        "8x h100.8x": 2,
    }
    whole = offers["8x h100.8x"]
    assert (whole.gpu_model, whole.gpu_memory_gib, whole.cpus, whole.region, whole.jurisdiction) == (
        "H100",
        80,
        115,
        "eu-de-1",
        "DE",
    )
    assert (whole.price.billed, whole.interconnect, whole.kind) == (False, "ethernet", "container")
    assert [offer.cpu_slots for offer in offers.values() if not offer.gpus] == [1, 2, 4, 8, 14]


async def test_the_network_of_whole_nodes_is_as_fast_as_the_operator_says(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster, network_gbps={"h100.8x": 3200, "*": 25})

    offers = await provider.offers(OfferQuery())

    await provider.close()
    told = {(offer.instance_type, offer.network_gbps) for offer in offers if offer.gpus}
    assert told == {("8x h100.8x", 3200.0), *((f"{gpus}x h100.8x", None) for gpus in (1, 2, 4))}


async def test_a_node_that_is_drained_tainted_or_not_ready_counts_for_nothing(cluster: KubernetesCluster) -> None:
    first, second, *_ = cluster.cluster_nodes
    first["spec"]["unschedulable"] = True
    second["spec"]["taints"] = [{"key": "team", "value": "vision", "effect": "NoSchedule"}]
    cluster.cluster_nodes[2]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    provider = kubernetes(cluster)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {(offer.instance_type, offer.count) for offer in offers if offer.gpus == 8} == {("8x h100.8x", 2)}
    assert not [offer for offer in offers if offer.cpu_slots]


async def test_one_node_that_says_nonsense_hides_no_other(cluster: KubernetesCluster) -> None:
    cluster.cluster_nodes[0]["status"]["allocatable"] = {"cpu": "many", "memory": "64Gi"}
    cluster.cluster_nodes[1]["metadata"]["labels"] = ["no", "labels"]
    provider = kubernetes(cluster)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {offer.instance_type.partition("x ")[2] for offer in offers} == {"h100.8x"}


async def test_without_the_right_to_see_all_pods_nobody_knows_what_is_free(cluster: KubernetesCluster) -> None:
    cluster.forbidden = {("list", "cluster-pods")}
    provider = kubernetes(cluster)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {(offer.availability, offer.count) for offer in offers} == {(Availability.UNKNOWN, None)}


async def test_a_full_cluster_says_so_unless_nodes_come_by_themselves(cluster: KubernetesCluster) -> None:
    held = {"nvidia.com/gpu": "8"}
    cluster.other_pods = [
        {
            "metadata": {"name": f"other-{name}"},
            "spec": {"containers": [{"resources": {"requests": held}}], "nodeName": name},
            "status": {"phase": "Running"},
        }
        for name in ("gpu-1", "gpu-2", "gpu-3")
    ]
    fixed, growing = kubernetes(cluster), kubernetes(cluster, autoscales=True)

    shown = [
        {offer.availability for offer in await provider.offers(OfferQuery()) if offer.gpus}
        for provider in (fixed, growing)
    ]

    await fixed.close()
    await growing.close()
    assert shown == [{Availability.NONE}, {Availability.UNKNOWN}]


async def test_prices_are_the_operators_and_a_part_costs_its_part(cluster: KubernetesCluster) -> None:
    cluster.cluster_nodes.append(node("old-1", "", 64, 512, gpus=4, product="Tesla-T4", region="eu-de-1"))
    provider = kubernetes(cluster, prices={"h100.8x": 16.0, "Tesla-T4": 2.0})

    offers = {offer.instance_type: offer.price for offer in await provider.offers(OfferQuery())}

    await provider.close()
    assert provider.capabilities.bills
    assert {name: price.usd_per_hour for name, price in offers.items()} == {
        "1x h100.8x": 2.0,
        "2x h100.8x": 4.0,
        "4x h100.8x": 8.0,
        "8x h100.8x": 16.0,
        "1x Tesla-T4": 0.5,
        "2x Tesla-T4": 1.0,
        "4x Tesla-T4": 2.0,
    }
    assert all(price.billed and price.live for price in offers.values())


@pytest.mark.parametrize(
    ("product", "shows_mib", "model", "sold_with_gib"),
    [
        ("NVIDIA-L40S", "46068", "L40S", 48),
        ("NVIDIA-L4", "23034", "L4", 24),
        ("NVIDIA-H200", "143771", "H200", 141),
        ("NVIDIA-A100-SXM4-40GB", "40960", "A100", 40),
        ("Tesla-T4", "none", "T4", 0),
    ],
)
def test_the_memory_of_a_gpu_is_what_it_is_sold_with(
    product: str, shows_mib: str, model: str, sold_with_gib: int
) -> None:
    labels = {"nvidia.com/gpu.memory": shows_mib}
    shown = Fields(node("n1", "type", 64, 512, gpus=4, product=product, labels=labels), "node")
    settings = KubernetesSettings()

    (offer, *_) = offers_of(kinds_of([shown], None, settings), settings, lambda *_: FREE, all_seen=False)

    assert (offer.gpu_model, offer.gpu_memory_gib) == (model, sold_with_gib)


async def test_nodes_that_may_be_taken_away_are_offers_of_their_own_and_get_their_own_pods(
    cluster: KubernetesCluster,
) -> None:
    labels = {"cloud.google.com/gke-spot": "true"}
    cluster.cluster_nodes.append(
        node("spot-1", "h100.8x", 128, 2048, gpus=8, region="eu-de-1", labels=labels, product="NVIDIA-H100-80GB-HBM3")
    )
    provider = kubernetes(cluster)
    offers = [offer for offer in await provider.offers(OfferQuery()) if offer.instance_type == "8x h100.8x"]
    for offer in offers:
        await provider.create(make_intent(new_deployment_id(), offer, LAUNCH))
    await provider.close()

    placed = {machine.order["spec"]["nodeName"] for machine in cluster.nodes()}

    assert {offer.capacity for offer in offers} == {"spot", "on_demand"}
    assert len(placed) == 2
    assert "spot-1" in placed


async def test_a_namespace_that_is_not_there_is_told_before_any_job(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster, namespace="nowhere")

    with pytest.raises(ProviderError, match="no namespace 'nowhere': make it, or set namespace") as refused:
        await provider.whoami()

    await provider.close()
    assert refused.value.fault is Fault.INVALID


async def test_it_says_who_one_is_and_where(cluster: KubernetesCluster) -> None:
    cluster.forbidden = {("get", "namespaces")}
    provider = kubernetes(cluster)

    identity = await provider.whoami()

    await provider.close()
    assert identity.account == f"{cluster.url}/training"
    assert identity.limits == {"user": "system:serviceaccount:training:shunter"}


async def test_a_pod_of_the_same_name_that_is_not_ours_is_left_alone_and_told(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster)
    intent = await an_intent(provider)
    await provider.create(intent)
    (machine,) = cluster.nodes()
    machine.order["metadata"]["labels"]["shunter/token"] = "shn-other-token"

    error = await error_of(provider, intent)

    await provider.close()
    assert error.fault is Fault.INVALID
    assert "not ours" in error.detail
    assert len(cluster.nodes()) == 1


async def test_the_end_of_a_node_leaves_no_secret_even_where_its_pod_went_before(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster)
    handle = await provider.create(await an_intent(provider))
    cluster.machines.end(cluster.nodes()[0], None)

    await until_terminated(provider, handle)

    await provider.close()
    assert cluster.secrets == {}


async def test_a_secret_without_a_pod_is_listed_when_no_create_call_can_need_it_any_more(
    cluster: KubernetesCluster,
) -> None:
    provider = kubernetes(cluster)
    intent = await an_intent(provider)
    await provider.create(intent)
    cluster.machines.end(cluster.nodes()[0], None)
    deployment = intent.token.split("-")[1]
    young = await provider.list_owned(deployment)
    cluster.secrets[intent.token]["metadata"]["creationTimestamp"] = moment(time.time() - 1000)

    (left,) = await provider.list_owned(deployment)
    await until_terminated(provider, left.handle)

    await provider.close()
    assert list(young) == []
    assert (left.handle, left.condition) == (intent.token, NodeCondition.STOPPED)
    assert cluster.secrets == {}


async def test_a_listing_that_grew_old_between_its_pages_is_read_again_and_twice_is_an_error(
    cluster: KubernetesCluster,
) -> None:
    provider = kubernetes(cluster)
    intent = await an_intent(provider)
    made = [await provider.create(replace(intent, token=f"{intent.token}{index}")) for index in range(3)]
    deployment = intent.token.split("-")[1]

    cluster.old_pages = 1
    views = await provider.list_owned(deployment)
    cluster.old_pages = 100
    with pytest.raises(ProviderError) as refused:
        await provider.list_owned(deployment)

    await provider.close()
    assert sorted(view.handle for view in views) == sorted(made)
    assert refused.value.fault is Fault.TRANSIENT


async def test_pods_of_others_in_the_namespace_are_not_touched(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster)
    intent = await an_intent(provider)
    await provider.create(intent)
    (machine,) = cluster.nodes()
    del machine.order["metadata"]["labels"]["app.kubernetes.io/managed-by"]

    views = await provider.list_owned(intent.token.split("-")[1])

    await provider.close()
    assert list(views) == []


async def test_two_that_make_the_same_node_at_once_leave_one_pod_with_its_secret(cluster: KubernetesCluster) -> None:
    provider = kubernetes(cluster)
    intent = await an_intent(provider)

    handles = await asyncio.gather(*(provider.create(intent) for _ in range(4)))

    await provider.close()
    assert set(handles) == {intent.token}
    assert len(cluster.nodes()) == 1
    assert list(cluster.secrets) == [intent.token]
