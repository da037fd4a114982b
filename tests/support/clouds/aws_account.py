"""An instance of the plugin on the fake of EC2, and what its tests ask for again and again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from shunter_providers.clouds.aws.provider import AwsProvider
from shunter_providers.contract import Instance, Intent, Launch, Offer, OfferQuery, ProviderError
from shunter_providers.testing import CloudConformance, Unpaced, WireCloud, make_intent
from shunter_schemas.ids import new_deployment_id
from support.clouds.aws import ACCESS_KEY

KEY: Final = CloudConformance.secret


def aws(cloud: WireCloud, **settings: Any) -> AwsProvider:
    """Without a pace."""
    keys = {"access_key_id": ACCESS_KEY, "secret_access_key": KEY}
    chosen = {**keys, "base_url": cloud.url, "timeout_s": 5.0, **settings}
    return AwsProvider(Instance("aws", "aws", chosen, pacer=Unpaced()))


async def an_offer(provider: AwsProvider, capacity: str = "on_demand", name: str = "", region: str = "") -> Offer:
    """The first that fits."""
    offers = await provider.offers(OfferQuery())
    fitting = [one for one in offers if one.capacity == capacity and name in one.instance_type and region in one.region]
    return fitting[0]


async def an_intent(provider: AwsProvider, **changes: Any) -> Intent:
    """One node, of a deployment of its own."""
    offer = changes.pop("offer", None) or await an_offer(provider)
    return replace(make_intent(new_deployment_id(), offer, Launch(("true",), {})), **changes)


async def refusal_of(provider: AwsProvider, intent: Intent) -> ProviderError:
    """How a create fails; closes the provider."""
    with pytest.raises(ProviderError) as refused:
        await provider.create(intent)
    await provider.close()
    return refused.value
