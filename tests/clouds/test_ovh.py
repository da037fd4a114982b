"""OVHcloud against a fake of its OpenStack and of its price list: the whole kit, and what is peculiar to it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from shunter_providers.clouds.ovh.provider import OvhProvider
from shunter_providers.contract import (
    Availability,
    Fault,
    Instance,
    Intent,
    Launch,
    NodeCondition,
    OfferQuery,
    ProviderError,
    Scope,
)
from shunter_providers.testing import CloudConformance, CloudFault, Request, Unpaced, WireCloud, make_intent
from shunter_providers.testing.conformance import listed, until_terminated, wait_for
from shunter_schemas.ids import new_deployment_id
from support.clouds.ovh import PROJECT, USER, OvhCloud

PASSWORD = CloudConformance.secret
HOST_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"


def ovh(cloud: WireCloud, **settings: Any) -> OvhProvider:
    chosen = {
        "auth_url": f"{cloud.url}/v3",
        "price_url": f"{cloud.url}/1.0",
        "user": USER,
        "password": PASSWORD,
        "project_id": PROJECT,
        "usd_per_eur": 1.25,
        "timeout_s": 5.0,
        **settings,
    }
    return OvhProvider(Instance("ovh", "ovh", chosen, pacer=Unpaced()))


@pytest.fixture
def cloud() -> Iterator[OvhCloud]:
    with OvhCloud(PASSWORD) as running:
        yield running


class TestOvh(CloudConformance):
    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with OvhCloud(PASSWORD) as running:
            yield running

    @pytest.fixture
    def provider(self, cloud: WireCloud) -> OvhProvider:
        return ovh(cloud, timeout_s=1.0)

    @pytest.fixture
    def unknown_handle(self) -> str:
        return "GRA11/01234567-89ab-cdef-0123-456789abcdef"


async def an_intent(provider: OvhProvider, name: str = "h100-380", **changes: Any) -> Intent:
    offer = next(one for one in await provider.offers(OfferQuery()) if one.instance_type == name)
    return replace(make_intent(new_deployment_id(), offer, Launch(("true",), {})), **changes)


def creates(cloud: OvhCloud) -> list[Request]:
    return [call for call in cloud.calls if call.method == "POST" and call.path.endswith("/servers")]


async def refusal(provider: OvhProvider, intent: Intent) -> ProviderError:
    with pytest.raises(ProviderError) as refused:
        await provider.create(intent)
    await provider.close()
    return refused.value


async def test_offers_join_flavors_with_the_price_list_at_the_operators_rate(cloud: OvhCloud) -> None:
    provider = ovh(cloud)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    shown = {
        (o.instance_type, o.region, o.gpu_model, o.gpus, o.gpu_memory_gib, o.jurisdiction, o.price.usd_per_hour)
        for o in offers
    }
    assert shown == {
        ("b3-8", "DE1", None, 0, 0, "DE", 0.1265),
        ("l4-90", "DE1", "L4", 1, 24, "DE", 0.9375),
        ("h100-380", "GRA11", "H100", 1, 80, "FR", 3.5),
        ("b3-8", "GRA11", None, 0, 0, "FR", 0.1265),
    }
    assert {(o.price.currency, o.price.usd_per_unit, o.price.live) for o in offers} == {("EUR", 1.25, True)}


async def test_without_a_rate_nothing_is_offered_at_a_price_in_euros(cloud: OvhCloud) -> None:
    provider = ovh(cloud, usd_per_eur=None)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {(o.instance_type, o.price.currency, o.price.live) for o in offers} == {("h100-380", "USD", False)}


async def test_a_subsidiary_that_bills_in_dollars_needs_no_rate(cloud: OvhCloud) -> None:
    cloud.currency = "USD"
    provider = ovh(cloud, usd_per_eur=None, subsidiary="US")

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {o.price.usd_per_hour for o in offers if o.instance_type == "h100-380"} == {2.8}


async def test_without_the_price_list_the_catalogues_prices_stand_in_marked_and_dated(cloud: OvhCloud) -> None:
    provider = ovh(cloud, price_url=f"{cloud.url}/nowhere")

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {(o.instance_type, o.price.live, o.price.as_of) for o in offers} == {
        ("l4-90", False, "2026-10-07"),
        ("h100-380", False, "2026-10-24"),
    }


@pytest.mark.parametrize("price", [0, -1, "free", None])
async def test_a_price_that_is_none_hides_its_flavor_alone(cloud: OvhCloud, price: Any) -> None:
    cloud.prices["b3-8"] = price
    provider = ovh(cloud)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {o.instance_type for o in offers} == {"l4-90", "h100-380"}


async def test_a_region_that_is_down_hides_no_other_from_offers_but_fails_a_listing(cloud: OvhCloud) -> None:
    cloud.down = {"DE1"}
    provider = ovh(cloud)

    offers = await provider.offers(OfferQuery())
    with pytest.raises(ProviderError) as refused:
        await provider.list_owned(new_deployment_id())

    await provider.close()
    assert {o.region for o in offers} == {"GRA11"}
    assert refused.value.fault is Fault.TRANSIENT


@pytest.mark.parametrize(("quota", "most"), [("cores", 33), ("ram", 380 * 1024), ("instances", 1)])
async def test_a_flavor_with_more_than_is_left_of_a_quota_says_so_and_is_refused(
    cloud: OvhCloud, quota: str, most: int
) -> None:
    provider = ovh(cloud)
    intent = await an_intent(provider)
    cloud.quotas[quota] = most

    found = {o.instance_type: o.availability for o in await provider.offers(OfferQuery())}
    error = await refusal(provider, intent)

    assert found["h100-380"] is Availability.NO_QUOTA
    assert found["b3-8"] is (Availability.NO_QUOTA if quota == "instances" else Availability.UNKNOWN)
    assert (error.fault, error.scope, error.may_have_created) == (Fault.QUOTA, Scope.REGION, False)
    assert f"Quota exceeded for {quota}" in error.detail


async def test_whoami_tells_what_the_project_may_have_and_has(cloud: OvhCloud) -> None:
    provider = ovh(cloud)

    identity = await provider.whoami()

    await provider.close()
    assert identity.account == PROJECT
    assert identity.limits == {
        "maxTotalCores": 1000,
        "totalCoresUsed": 4,
        "totalRAMUsed": 8192,  # of as much as it likes
        "maxTotalInstances": 500,
        "totalInstancesUsed": 1,
    }


async def test_a_node_for_which_there_is_no_host_has_failed_with_the_reason_and_is_ended(cloud: OvhCloud) -> None:
    cloud.full = {"GRA11"}
    provider = ovh(cloud)
    intent = await an_intent(provider)
    handle = await provider.create(intent)
    view = await wait_for(provider, handle, NodeCondition.FAILED, 10)

    (still_listed,) = await listed(provider, intent.tags["deployment"], 1)
    await until_terminated(provider, handle)

    await provider.close()
    assert (view.reason, view.fault) == ("No valid host was found.", Fault.NO_CAPACITY)
    assert still_listed.handle == handle
    assert cloud.nodes() == []


async def test_a_create_whose_answer_is_lost_is_sent_once_whatever_libcloud_is_told_to_do(
    cloud: OvhCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBCLOUD_RETRY_FAILED_HTTP_REQUESTS", "1")
    provider = ovh(cloud)
    intent = await an_intent(provider)
    cloud.strike(CloudFault.LOST_REPLY)

    error = await refusal(provider, intent)

    assert error.may_have_created
    assert len(creates(cloud)) == len(cloud.nodes()) == 1


async def test_keys_go_into_user_data_and_the_launch_does_not(cloud: OvhCloud) -> None:
    provider = ovh(cloud)
    launch = Launch(("{python}", "agent.pyz"), {"agent.pyz": b"x" * 400_000}, {"TOKEN": "for-ssh-alone"})
    intent = await an_intent(provider, launch=launch, public_key="ssh-ed25519 AAAA job", host_key=HOST_KEY)
    handle = await provider.create(intent)
    view = await wait_for(provider, handle, NodeCondition.RUNNING, 10)

    server = creates(cloud)[0].json()["server"]

    await provider.close()
    config = json.loads(base64.b64decode(server["user_data"]).decode().partition("\n")[2])
    assert config == {
        "ssh_authorized_keys": ["ssh-ed25519 AAAA job"],
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": HOST_KEY},
    }
    assert server["imageRef"] == cloud.images["NVIDIA GPU Cloud (NGC)"]
    assert server["metadata"] == {"shunter-deployment": intent.tags["deployment"], "shunter-job": "job_conformance"}
    assert view.ssh is not None
    assert (view.ssh.host, view.ssh.user, view.addresses) == ("127.0.0.1", "ubuntu", {"public": "127.0.0.1"})


async def test_a_node_that_has_no_host_yet_or_is_gone_has_no_console(cloud: OvhCloud) -> None:
    cloud.machines.boot_s = 3600.0
    provider = ovh(cloud)
    intent = await an_intent(provider)
    handle = await provider.create(intent)
    await listed(provider, intent.tags["deployment"], 1)

    before = await provider.console(handle)
    await until_terminated(provider, handle)
    after = await provider.console(handle)

    await provider.close()
    assert (before, after) == ("", "")


async def test_a_private_network_joins_nodes_and_its_address_is_told(cloud: OvhCloud) -> None:
    provider = ovh(cloud, networks=["Ext-Net", "private"])
    intent = await an_intent(provider)
    handle = await provider.create(intent)

    view = await wait_for(provider, handle, NodeCondition.RUNNING, 10)

    await provider.close()
    assert view.addresses == {"public": "127.0.0.1", "private": "10.1.0.4"}
    assert (intent.offer.interconnect, intent.offer.fabric) == ("ethernet", "private GRA11")


@pytest.mark.parametrize(
    ("changes", "settings", "said", "fault"),
    [
        ({"options": {"image": "Nothing"}}, {}, "GRA11 has no image 'Nothing'", Fault.INVALID),
        ({"options": {"image": ""}}, {}, "placement.options.ovh.image", Fault.INVALID),
        ({}, {"networks": ["nowhere"]}, "GRA11 has no network 'nowhere'", Fault.INVALID),
    ],
)
async def test_what_a_region_has_not_is_named(
    cloud: OvhCloud, changes: dict[str, Any], settings: dict[str, Any], said: str, fault: Fault
) -> None:
    provider = ovh(cloud, **settings)
    intent = await an_intent(provider, **changes)

    error = await refusal(provider, intent)

    assert said in error.detail
    assert error.fault is fault
    assert creates(cloud) == []


async def test_a_flavor_that_left_its_region_is_no_capacity_there(cloud: OvhCloud) -> None:
    provider = ovh(cloud)
    intent = await an_intent(provider)
    cloud.flavors["GRA11"] = []

    error = await refusal(provider, intent)

    assert (error.fault, error.scope) == (Fault.NO_CAPACITY, Scope.OFFER)


async def test_a_region_that_the_project_has_not_is_told_with_those_that_it_has(cloud: OvhCloud) -> None:
    provider = ovh(cloud, regions=["ATLANTIS1"])

    with pytest.raises(ProviderError, match=r"no compute in ATLANTIS1 \(it has DE1, GRA11\)") as refused:
        await provider.offers(OfferQuery())

    await provider.close()
    assert refused.value.fault is Fault.INVALID


async def test_one_sign_in_serves_all_calls_and_a_refused_token_is_replaced_by_itself(cloud: OvhCloud) -> None:
    provider = ovh(cloud)
    await provider.offers(OfferQuery())
    await provider.list_owned(new_deployment_id())
    signed_in = [call.path for call in cloud.calls].count("/v3/auth/tokens")
    cloud.revoke()

    await provider.list_owned(new_deployment_id())

    await provider.close()
    assert signed_in == 1


async def test_a_wrong_password_is_told_with_the_user_and_never_shown(cloud: OvhCloud) -> None:
    provider = ovh(cloud, password="a-password-that-is-wrong")

    with pytest.raises(ProviderError) as refused:
        await provider.whoami()

    await provider.close()
    assert (refused.value.fault, refused.value.scope) == (Fault.AUTH, Scope.ACCOUNT)
    assert "a-password-that-is-wrong" not in refused.value.detail + repr(provider)


def test_a_missing_setting_is_named_with_the_vendors_variable() -> None:
    with pytest.raises(ProviderError, match="OS_PASSWORD") as refused:
        OvhProvider(Instance("ovh", "ovh", {"user": USER}, environment={"OS_TENANT_ID": PROJECT}))

    assert refused.value.fault is Fault.INVALID
    assert "project_id" not in refused.value.detail
