"""CoreWeave's clusters against the fake of the kube API: the whole kit, its prices, places, fabrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from shunter_providers.clouds.kubernetes.coreweave import CoreweaveProvider
from shunter_providers.contract import Instance, Launch, OfferQuery, Provider
from shunter_providers.testing import CloudConformance, Unpaced, WireCloud, make_intent
from shunter_schemas.ids import new_deployment_id
from support.clouds.coreweave import CoreweaveCluster, h100
from support.clouds.kube_scheduler import node
from support.clouds.kubernetes import KubernetesCluster

TOKEN = CloudConformance.secret


def coreweave(cluster: WireCloud, **settings: Any) -> CoreweaveProvider:
    chosen = {"server": cluster.url, "token": TOKEN, "namespace": "training", "timeout_s": 1.0, **settings}
    return CoreweaveProvider(Instance("coreweave", "coreweave", chosen, pacer=Unpaced()))


@pytest.fixture
def cluster() -> Iterator[KubernetesCluster]:
    with CoreweaveCluster(TOKEN, h100("g1", "f1"), h100("g2", "f2"), h100("g3", "f2")) as running:
        yield running


@pytest.mark.slow
class TestCoreweave(CloudConformance):
    profile = "container"

    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with CoreweaveCluster(TOKEN, *(h100(f"g{index}", "f1") for index in range(4))) as running:
            yield running

    @pytest.fixture
    def provider(self, cloud: WireCloud) -> Provider:
        return coreweave(cloud)


async def test_whole_nodes_are_joined_by_rdma_in_one_fabric_at_the_published_price(cluster: KubernetesCluster) -> None:
    provider = coreweave(cluster)

    offers = {offer.instance_type: offer for offer in await provider.offers(OfferQuery())}

    await provider.close()
    whole, half = offers["8x gd-8xh100ib-i128"], offers["4x gd-8xh100ib-i128"]
    assert (whole.gpu_model, whole.gpu_memory_gib, whole.jurisdiction) == ("H100", 80, "US")
    assert (whole.interconnect, whole.fabric, whole.count) == ("rdma", "f2", 2)
    assert (whole.price.usd_per_hour, whole.price.live, whole.price.as_of) == (49.24, False, "2026-09-20")
    assert (half.interconnect, half.price.usd_per_hour) == ("ethernet", 24.62)


async def test_a_gang_asks_for_the_fast_network_and_stands_in_one_fabric(cluster: KubernetesCluster) -> None:
    provider = coreweave(cluster)
    offer = next(one for one in await provider.offers(OfferQuery()) if one.gpus == 8)
    intent = replace(make_intent(new_deployment_id(), offer, Launch(("true",), {})), gang_size=2)
    await provider.create(intent)
    await provider.close()

    order = next(call.json() for call in cluster.calls if call.path.endswith("/pods") and call.method == "POST")

    container = order["spec"]["containers"][0]
    (near,) = order["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert container["resources"]["requests"]["rdma/ib"] == container["resources"]["limits"]["rdma/ib"] == "1"
    assert {"name": "NCCL_IB_HCA", "value": "ibp"} in container["env"]
    assert near["topologyKey"] == "backend.coreweave.cloud/fabric"


async def test_spot_pools_have_the_spot_price() -> None:
    with CoreweaveCluster(TOKEN, h100("g1", "f1", pool="cheap"), h100("g2", "f1")) as cluster:
        provider = coreweave(cluster, spot_labels={"pool": "cheap"})

        offers = [offer for offer in await provider.offers(OfferQuery()) if offer.gpus == 8]

        await provider.close()
    assert {offer.capacity: offer.price.usd_per_hour for offer in offers} == {"spot": 19.71, "on_demand": 49.24}


async def test_a_kind_without_a_published_price_is_left_out_unless_the_operator_names_one() -> None:
    spain = h100("g1", "f1", region="EU-SOUTH-03B")
    with CoreweaveCluster(TOKEN, spain, node("c1", "turin-gp", 64, 256, region="EU-SOUTH-03B")) as cluster:
        published, own = coreweave(cluster), coreweave(cluster, prices={"gd-8xh100ib-i128": 51.0})

        without, with_price = await published.offers(OfferQuery()), await own.offers(OfferQuery())

        await published.close()
        await own.close()
    assert list(without) == []
    assert {(offer.price.usd_per_hour, offer.jurisdiction) for offer in with_price if offer.gpus == 8} == {(51.0, "ES")}


async def test_an_instance_id_that_is_new_has_the_price_of_the_only_one_alike_and_says_so() -> None:
    renamed = h100("g1", "f1")
    renamed["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "gd-8xh100ib-i256"
    with CoreweaveCluster(TOKEN, renamed) as cluster:
        provider = coreweave(cluster)

        (offer,) = [offer for offer in await provider.offers(OfferQuery()) if offer.gpus == 8]

        await provider.close()
    assert (offer.price.usd_per_hour, offer.price.confidence) == (49.24, "derived")


async def test_a_region_lies_where_the_vendor_says_and_a_new_one_nowhere() -> None:
    countries = {
        "US-EAST-04A": "US",
        "US-WEST-01": "US",
        "RNO2A": "US",
        "CA-EAST-01A": "CA",
        "EU-NORTH-02A": "NO",
        "EU-NORTH-04A": "SE",
        "EU-SOUTH-03B": "ES",
        "EU-WEST-02A": "GB",
        "EU-EAST-01A": "",
        "EU-NORTH-09A": "",
    }
    with CoreweaveCluster(TOKEN, *(h100(f"g{region.lower()}", "f1", region=region) for region in countries)) as cluster:
        provider = coreweave(cluster, prices={"*": 50.0})

        offers = await provider.offers(OfferQuery())

        await provider.close()
    assert {offer.region: offer.jurisdiction for offer in offers} == countries
