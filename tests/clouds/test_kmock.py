"""The plugin against a mock of the kube API that others wrote: what it sends is what they take for Kubernetes."""

from __future__ import annotations

from dataclasses import replace

import kmock
import pytest
from shunter_providers.clouds.kubernetes.provider import KubernetesProvider
from shunter_providers.contract import Instance, Launch, Offer, OfferQuery, Price
from shunter_providers.testing import Unpaced, make_intent
from shunter_providers.testing.conformance import until_terminated
from shunter_schemas.ids import new_deployment_id

pytestmark = pytest.mark.slow

OFFER = Offer("1x h100.8x", "cluster", "", Price(billed=False), gpus=1, gpu_model="H100", cpus=8, memory_gib=64)


async def test_a_node_is_made_once_found_listed_and_ended() -> None:
    async with kmock.KubernetesEmulator() as cluster, kmock.Server(cluster) as server:
        for resource in ("v1/pods", "v1/secrets", "v1/nodes"):
            cluster.resources[resource] = kmock.ResourceInfo()
        settings = {"server": str(server.url), "token": "t", "namespace": "training"}
        provider = KubernetesProvider(Instance("kubernetes", "kubernetes", settings, pacer=Unpaced()))
        deployment = new_deployment_id()
        intent = make_intent(deployment, OFFER, Launch(("true",), {"launch.json": b"{}"}))

        first, second = await provider.create(intent), await provider.create(intent)
        other = await provider.create(replace(intent, token=f"{intent.token}b"))
        listed = await provider.list_owned(deployment)
        for handle in (first, other):
            await until_terminated(provider, handle)
        left, offers = await provider.list_owned(deployment), await provider.offers(OfferQuery())

        await provider.close()

    assert first == second == intent.token
    assert sorted(view.handle for view in listed) == sorted((first, other))
    assert (list(left), list(offers)) == ([], [])
