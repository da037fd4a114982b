"""A tenant of the fake cluster, and what it asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shunter_providers.clouds.kubernetes.provider import KubernetesProvider
from shunter_providers.contract import (
    Instance,
    Intent,
    Launch,
    OfferQuery,
    ProviderError,
)
from shunter_providers.testing import CloudConformance, Unpaced, WireCloud, make_intent
from shunter_schemas.ids import new_deployment_id
from support.clouds.kubernetes import KubernetesCluster

TOKEN = CloudConformance.secret
LAUNCH = Launch(("{python}", "agent.pyz", "start", "--dir", "."), {"agent.pyz": b"#!", "launch.json": b"{}"})


def kubernetes(cluster: WireCloud, **settings: Any) -> KubernetesProvider:
    chosen = {"server": cluster.url, "token": TOKEN, "namespace": "training", "timeout_s": 1.0, **settings}
    return KubernetesProvider(Instance("kubernetes", "kubernetes", chosen, pacer=Unpaced()))


async def an_intent(provider: KubernetesProvider, kind: str = "8x h100.8x", **changes: Any) -> Intent:
    offer = next(offer for offer in await provider.offers(OfferQuery()) if offer.instance_type == kind)
    return replace(make_intent(new_deployment_id(), offer, LAUNCH), **changes)


async def error_of(provider: KubernetesProvider, intent: Intent) -> ProviderError:
    with pytest.raises(ProviderError) as refused:
        await provider.create(intent)
    return refused.value


def orders(cluster: KubernetesCluster) -> list[Any]:
    return [call.json() for call in cluster.calls if call.method == "POST" and call.path.endswith("/pods")]
