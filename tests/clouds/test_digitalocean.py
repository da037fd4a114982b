"""DigitalOcean against a fake of its API v2: the whole kit, and what is peculiar to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from shunter_providers.clouds.digitalocean import DigitaloceanProvider, jurisdiction_of
from shunter_providers.contract import (
    Availability,
    Fault,
    Instance,
    Intent,
    Launch,
    NodeCondition,
    Offer,
    OfferQuery,
    Provider,
    ProviderError,
    Scope,
)
from shunter_providers.testing import CloudConformance, CloudFault, Reply, Request, Unpaced, WireCloud, make_intent
from shunter_providers.testing.conformance import listed, until_terminated, wait_for
from shunter_schemas.ids import new_deployment_id
from support.clouds.digitalocean import DigitaloceanCloud, size

KEY = CloudConformance.secret
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"


def digitalocean(cloud: WireCloud, **settings: Any) -> DigitaloceanProvider:
    chosen = {"api_key": KEY, "base_url": cloud.url, "timeout_s": 5.0, **settings}
    return DigitaloceanProvider(Instance("digitalocean", "digitalocean", chosen, pacer=Unpaced()))


@pytest.fixture
def cloud() -> Iterator[DigitaloceanCloud]:
    with DigitaloceanCloud(KEY) as running:
        yield running


async def offer_of(provider: Provider, instance_type: str) -> Offer:
    return next(offer for offer in await provider.offers(OfferQuery()) if offer.instance_type == instance_type)


async def an_intent(provider: Provider, instance_type: str = "gpu-h100x1-80gb", **changes: Any) -> Intent:
    offer = await offer_of(provider, instance_type)
    return replace(make_intent(new_deployment_id(), offer, Launch((), {})), **changes)


def body_of(cloud: DigitaloceanCloud) -> dict[str, Any]:
    body: dict[str, Any] = next(call.json() for call in cloud.calls if call.method == "POST")
    return body


class TestDigitalocean(CloudConformance):
    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with DigitaloceanCloud(KEY) as running:
            yield running

    @pytest.fixture
    def provider(self, cloud: WireCloud) -> DigitaloceanProvider:
        return digitalocean(cloud, timeout_s=1.0)

    @pytest.fixture
    def unknown_handle(self) -> str:
        return "448542999"


async def test_offers_say_model_memory_of_one_gpu_and_place_over_all_pages(cloud: DigitaloceanCloud) -> None:
    provider = digitalocean(cloud)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    shown = {(o.instance_type, o.gpu_model, o.gpus, o.gpu_memory_gib, o.region, o.jurisdiction) for o in offers}
    assert shown == {
        ("gpu-h100x1-80gb", "H100", 1, 80, "tor1", "CA"),
        ("gpu-h100x1-80gb", "H100", 1, 80, "ams3", "NL"),
        ("gpu-h100x8-640gb", "H100", 8, 80, "nyc2", "US"),
        ("gpu-mi300x1-192gb", "MI300X", 1, 192, "atl1", "US"),
        ("gpu-4000adax1-20gb", "RTX-4000-Ada", 1, 20, "unknown", ""),
        ("c-4", None, 0, 0, "fra1", "DE"),
        ("c-4", None, 0, 0, "zzz1", ""),
    }


@pytest.mark.parametrize(
    ("region", "country"),
    [("nyc3", "US"), ("fra1", "DE"), ("lon1", "GB"), ("sgp1", "SG"), ("syd1", "AU"), ("blr1", "IN"), ("new1", "")],
)
def test_the_country_of_a_region_is_never_guessed(region: str, country: str) -> None:
    assert jurisdiction_of(region) == country


async def test_a_size_that_is_to_be_had_nowhere_is_offered_as_taken(cloud: DigitaloceanCloud) -> None:
    provider = digitalocean(cloud)

    offers = {offer.instance_type: offer.availability for offer in await provider.offers(OfferQuery())}

    await provider.close()
    assert offers["gpu-4000adax1-20gb"] is Availability.NONE
    assert offers["gpu-h100x1-80gb"] is Availability.AVAILABLE


@pytest.mark.parametrize("price", [0, -1, "free", None])
async def test_a_size_without_a_sane_price_is_no_offer_and_hides_no_other(cloud: DigitaloceanCloud, price: Any) -> None:
    cloud.sizes = [size("c-8", 0.25, ("fra1",)), size("c-16", 0.5, ("fra1",))]
    cloud.sizes[0]["price_hourly"] = price
    provider = digitalocean(cloud)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert [offer.instance_type for offer in offers] == ["c-16"]


async def test_droplets_with_and_without_gpus_are_both_listed_and_ended(cloud: DigitaloceanCloud) -> None:
    provider = digitalocean(cloud)
    deployment = new_deployment_id()
    for kind in ("gpu-h100x1-80gb", "c-4", "gpu-mi300x1-192gb", "c-4", "gpu-h100x8-640gb"):
        await provider.create(make_intent(deployment, await offer_of(provider, kind), Launch((), {})))

    views = await listed(provider, deployment, 5)
    for view in views:
        await until_terminated(provider, view.handle)

    await provider.close()
    assert len({view.handle for view in views}) == 5
    assert cloud.nodes() == []


async def test_a_listing_that_misses_some_since_others_went_meanwhile_is_an_error(cloud: DigitaloceanCloud) -> None:
    provider = digitalocean(cloud)
    whole = cloud._list

    def shrunk(request: Request) -> Reply:
        reply = whole(request)
        return reply._replace(body={**reply.body, "meta": {"total": 3}})

    cloud._list = shrunk  # type: ignore[method-assign]

    with pytest.raises(ProviderError, match="0 of 3 were listed") as failed:
        await provider.list_owned("abcdef")

    await provider.close()
    assert failed.value.fault is Fault.TRANSIENT


@pytest.mark.parametrize(
    ("instance_type", "image"),
    [
        ("gpu-h100x1-80gb", "gpu-h100x1-base"),
        ("gpu-h100x8-640gb", "gpu-h100x8-base"),
        ("gpu-mi300x1-192gb", "gpu-amd-base"),
        ("c-4", "ubuntu-24-04-x64"),
    ],
)
async def test_each_kind_boots_the_vendors_image_for_it(
    cloud: DigitaloceanCloud, instance_type: str, image: str
) -> None:
    provider = digitalocean(cloud)
    await provider.create(await an_intent(provider, instance_type))
    await provider.close()

    assert body_of(cloud)["image"] == image


async def test_an_image_of_the_account_is_named_by_its_number(cloud: DigitaloceanCloud) -> None:
    provider = digitalocean(cloud, image="gpu-h100x1-base")
    await provider.create(await an_intent(provider, options={"image": "63663980"}))
    await provider.close()

    assert body_of(cloud)["image"] == 63663980


async def test_an_image_that_does_not_exist_is_named(cloud: DigitaloceanCloud) -> None:
    provider = digitalocean(cloud)
    intent = await an_intent(provider, options={"image": "nothing-at-all"})

    with pytest.raises(ProviderError, match="invalid image") as refused:
        await provider.create(intent)

    await provider.close()
    assert refused.value.fault is Fault.INVALID
    assert cloud.nodes() == []


async def test_an_unknown_option_of_a_job_is_named_and_nothing_is_made(cloud: DigitaloceanCloud) -> None:
    provider = digitalocean(cloud)
    intent = await an_intent(provider, options={"imagee": "x"})

    with pytest.raises(ProviderError, match=r"placement\.options\.digitalocean\.imagee") as refused:
        await provider.create(intent)

    await provider.close()
    assert refused.value.fault is Fault.INVALID
    assert cloud.nodes() == []


async def test_user_data_lets_root_in_by_our_keys_and_brings_nothing_else(cloud: DigitaloceanCloud) -> None:
    provider = digitalocean(cloud, ssh_keys=[289794, "3b:16:e4:bf"])
    launch = Launch(("{python}", "agent.pyz"), {"agent.pyz": b"x" * 300_000})
    intent = await an_intent(provider, launch=launch, public_key="ssh-ed25519 AAAA job", host_key=PRIVATE)
    handle = await provider.create(intent)
    view = await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    await provider.close()

    body = body_of(cloud)
    head, _, rest = body["user_data"].partition("\n")
    config = json.loads(rest)

    assert view.addresses == {"public": "127.0.0.1", "private": "10.128.192.124"}
    assert view.ssh is not None
    assert (view.ssh.host, view.ssh.port, view.ssh.user) == ("127.0.0.1", 22, "root")
    assert body["ssh_keys"] == [289794, "3b:16:e4:bf"]
    assert head == "#cloud-config"
    assert config["ssh_authorized_keys"] == ["ssh-ed25519 AAAA job"]
    assert config["ssh_keys"] == {"ed25519_private": PRIVATE}
    assert (config["disable_root"], config["ssh_pwauth"]) == (False, False)
    assert "write_files" not in config
    assert [command[:2] for command in config["runcmd"]] == [["sh", "-c"]]
    assert "agent" not in body["user_data"]


async def test_user_data_of_a_users_own_goes_as_it_is_and_no_more_than_the_vendor_takes(
    cloud: DigitaloceanCloud,
) -> None:
    provider = digitalocean(cloud)
    await provider.create(await an_intent(provider, user_data="#!/bin/sh\ntrue\n"))
    longer = await an_intent(provider, user_data="#" * 65_537)

    with pytest.raises(ProviderError, match="user data of 65537 bytes") as refused:
        await provider.create(longer)

    await provider.close()
    assert body_of(cloud)["user_data"] == "#!/bin/sh\ntrue\n"
    assert refused.value.fault is Fault.INVALID
    assert len(cloud.nodes()) == 1


async def test_a_droplet_whose_creation_failed_after_it_was_accepted_has_failed(cloud: DigitaloceanCloud) -> None:
    provider = digitalocean(cloud)
    cloud.strike(CloudFault.NEVER_BOOTS)
    intent = await an_intent(provider)
    handle = await provider.create(intent)
    await listed(provider, intent.tags["deployment"], 1)
    waiting = await provider.get(handle)
    cloud.nodes()[0].extra["create"] = "errored"

    failed = await provider.get(handle)

    await provider.close()
    assert waiting.condition is NodeCondition.PENDING
    assert (failed.condition, failed.token) == (NodeCondition.FAILED, intent.token)
    assert failed.reason


@pytest.mark.parametrize(
    ("status", "message", "fault", "scope"),
    [
        (422, "Size is not available in this region.", Fault.NO_CAPACITY, Scope.OFFER),
        (
            422,
            "The size you selected is temporarily unavailable because of High CPU server capacity",
            Fault.NO_CAPACITY,
            Scope.OFFER,
        ),
        (422, "Region is not available", Fault.NO_CAPACITY, Scope.REGION),
        (422, "This size is currently restricted, please open a ticket", Fault.QUOTA, Scope.OFFER),
        (422, "creating this/these droplet(s) will exceed your droplet limit", Fault.QUOTA, Scope.ACCOUNT),
        (422, "Name Only valid hostname characters are allowed.", Fault.INVALID, Scope.OFFER),
        (403, "You are missing the required permission droplet:create", Fault.AUTH, Scope.ACCOUNT),
    ],
)
async def test_one_status_means_many_things_and_the_words_decide(
    cloud: DigitaloceanCloud, status: int, message: str, fault: Fault, scope: Scope
) -> None:
    provider = digitalocean(cloud)
    intent = await an_intent(provider)
    said = Reply(status, {"id": "unprocessable_entity", "message": message})
    cloud._create = lambda request: said  # type: ignore[method-assign]

    with pytest.raises(ProviderError) as refused:
        await provider.create(intent)

    await provider.close()
    assert (refused.value.fault, refused.value.scope) == (fault, scope)


async def test_a_locked_account_is_told_before_anything_is_ordered(cloud: DigitaloceanCloud) -> None:
    cloud.account_status = "locked"
    provider = digitalocean(cloud)

    with pytest.raises(ProviderError, match="verify your payment method") as refused:
        await provider.whoami()

    await provider.close()
    assert (refused.value.fault, refused.value.scope) == (Fault.PAYMENT, Scope.ACCOUNT)


@pytest.mark.parametrize(
    "variable", ["DIGITALOCEAN_TOKEN", "DIGITALOCEAN_ACCESS_TOKEN", "SHUNTER_DIGITALOCEAN_API_KEY"]
)
async def test_the_token_is_taken_from_the_vendors_variables(cloud: DigitaloceanCloud, variable: str) -> None:
    instance = Instance(
        "digitalocean", "digitalocean", {"base_url": cloud.url}, environment={variable: KEY}, pacer=Unpaced()
    )
    provider = DigitaloceanProvider(instance)

    who = await provider.whoami()

    await provider.close()
    assert who.account == "5df3e3004a17e242b7c20ca6c9fc25b701a47ece"
    assert who.limits == {"droplets": 25}
