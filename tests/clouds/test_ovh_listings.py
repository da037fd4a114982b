"""Listings of OVHcloud's servers are complete or an error, whatever becomes of the servers between their pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from shunter_providers.clouds.ovh.provider import OvhProvider
from shunter_providers.contract import Fault, Instance, Intent, Launch, OfferQuery, ProviderError
from shunter_providers.testing import Reply, Request, Unpaced, make_intent
from shunter_providers.testing.conformance import listed
from shunter_schemas.ids import new_deployment_id
from support.clouds.accounts import FAKES
from support.clouds.ovh import OvhCloud

PASSWORD = "a-secret-of-some-length"


@pytest.fixture
def cloud() -> Iterator[OvhCloud]:
    with OvhCloud(PASSWORD) as running:
        yield running


def ovh(cloud: OvhCloud) -> OvhProvider:
    settings = {**FAKES["ovh"].settings(cloud.url, PASSWORD), "timeout_s": 20.0, "visibility_delay_s": 5.0}
    return OvhProvider(Instance("ovh", "ovh", settings, pacer=Unpaced()))


async def an_intent(provider: OvhProvider) -> Intent:
    offer = next(one for one in await provider.offers(OfferQuery()) if one.instance_type == "h100-380")
    return make_intent(new_deployment_id(), offer, Launch(("true",), {}))


async def test_a_page_that_servers_in_the_making_cut_short_is_not_taken_for_the_last(cloud: OvhCloud) -> None:
    cloud.machines.boot_s = 3600.0
    provider = ovh(cloud)
    intent = await an_intent(provider)
    made = [await provider.create(replace(intent, token=f"{intent.token}{number}")) for number in range(3)]

    views = await listed(provider, intent.tags["deployment"], 3)

    await provider.close()
    assert sorted(view.handle for view in views) == sorted(made)


def lose_the_place(cloud: OvhCloud, monkeypatch: pytest.MonkeyPatch, times: int) -> list[str]:
    """So many pages are answered and their last server is gone before the next is asked for; their ids."""
    answer, gone = cloud.answer, list[str]()

    def and_end_the_last(request: Request) -> Reply | None:
        reply = answer(request)
        if reply is not None and "servers_links" in (reply.body or {}) and len(gone) < times:
            gone.append(reply.body["servers"][-1]["id"])
            machine = cloud.machines.find(gone[-1])
            assert machine is not None
            cloud.machines.end(machine, None)
        return reply

    monkeypatch.setattr(cloud, "answer", and_end_the_last)
    return gone


async def test_a_listing_that_loses_its_place_with_a_server_is_begun_anew_and_is_complete(
    cloud: OvhCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = ovh(cloud)
    intent = await an_intent(provider)
    made = [await provider.create(replace(intent, token=f"{intent.token}{number}")) for number in range(4)]
    await listed(provider, intent.tags["deployment"], 4)
    gone = lose_the_place(cloud, monkeypatch, times=1)

    views = await provider.list_owned(intent.tags["deployment"])

    await provider.close()
    assert sorted(view.handle for view in views) == sorted(set(made) - {f"GRA11/{gone[0]}"})


async def test_a_listing_that_loses_its_place_time_and_again_is_an_error_and_never_short(
    cloud: OvhCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = ovh(cloud)
    intent = await an_intent(provider)
    for number in range(5):
        await provider.create(replace(intent, token=f"{intent.token}{number}"))
    await listed(provider, intent.tags["deployment"], 5)
    lose_the_place(cloud, monkeypatch, times=1000)

    with pytest.raises(ProviderError) as refused:
        await provider.list_owned(intent.tags["deployment"])

    await provider.close()
    assert refused.value.fault is Fault.TRANSIENT
    assert cloud.nodes() != []
