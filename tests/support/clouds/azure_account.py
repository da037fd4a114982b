"""An instance of the `azure` plugin on the fake, and what tests ask it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from shunter_providers.clouds.azure.provider import AzureProvider
from shunter_providers.contract import Instance, Intent, Launch, Offer, OfferQuery, ProviderError
from shunter_providers.testing import CloudConformance, Request, Unpaced, WireCloud, make_intent
from shunter_schemas.ids import new_deployment_id
from support.clouds.azure import AzureCloud
from support.clouds.azure_market import CPU, H100
from support.clouds.azure_words import CLIENT, SUBSCRIPTION, TENANT

SECRET: Final = CloudConformance.secret


def azure(cloud: WireCloud, **settings: Any) -> AzureProvider:
    """An instance without a pace."""
    chosen = {
        "tenant_id": TENANT,
        "client_id": CLIENT,
        "client_secret": SECRET,
        "subscription_id": SUBSCRIPTION,
        "base_url": cloud.url,
        "auth_url": cloud.url,
        "prices_url": cloud.url,
        "timeout_s": 1.0,
        "cpu_types": CPU,
        **settings,
    }
    return AzureProvider(Instance("azure", "azure", chosen, pacer=Unpaced()))


async def offer_of(provider: AzureProvider, name: str = H100, capacity: str = "on_demand") -> Offer:
    """The first of that type and capacity."""
    offers = await provider.offers(OfferQuery())
    return next(one for one in offers if (one.instance_type, one.capacity) == (name, capacity))


async def an_intent(provider: AzureProvider, name: str = H100, capacity: str = "on_demand", **changes: Any) -> Intent:
    """For one node, in a deployment of its own."""
    offer = await offer_of(provider, name, capacity)
    return replace(make_intent(new_deployment_id(), offer, Launch(("true",), {})), **changes)


def orders(cloud: AzureCloud) -> list[Request]:
    """Calls that make a node."""
    return [call for call in cloud.calls if call.method == "PUT" and "/virtualMachines/" in call.path]


async def refusal(provider: AzureProvider, intent: Intent) -> ProviderError:
    """What the create call is refused with."""
    with pytest.raises(ProviderError) as refused:
        await provider.create(intent)
    return refused.value
