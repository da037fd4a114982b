"""Vast.ai against a fake of its API: the whole kit, and what is peculiar to a market."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from shunter_providers.clouds.vast.market import region_of
from shunter_providers.clouds.vast.provider import VastProvider
from shunter_providers.contract import (
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
from shunter_providers.testing.conformance import wait_for
from shunter_schemas.ids import new_deployment_id
from support.clouds.vast import VastCloud, ask

KEY = CloudConformance.secret


def vast(cloud: WireCloud, **settings: Any) -> VastProvider:
    chosen = {"api_key": KEY, "base_url": cloud.url, "timeout_s": 5.0, **settings}
    return VastProvider(Instance("vast", "vast", chosen, pacer=Unpaced()))


@pytest.fixture
def cloud() -> Iterator[VastCloud]:
    with VastCloud(KEY) as running:
        yield running


async def offer_of(provider: Provider, capacity: str = "on_demand", region: str = "RO") -> Offer:
    offers = await provider.offers(OfferQuery())
    return next(offer for offer in offers if (offer.capacity, offer.region) == (capacity, region))


async def an_intent(provider: VastProvider, capacity: str = "on_demand", **changes: Any) -> Intent:
    offer = await offer_of(provider, capacity)
    return replace(make_intent(new_deployment_id(), offer, Launch((), {})), **changes)


class TestVast(CloudConformance):
    profile = "container"

    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with VastCloud(KEY) as running:
            yield running

    @pytest.fixture
    def provider(self, cloud: WireCloud) -> VastProvider:
        return vast(cloud, timeout_s=1.0)

    @pytest_asyncio.fixture
    async def offer(self, provider: Provider) -> Offer:
        return await offer_of(provider)

    @pytest.fixture
    def unknown_handle(self) -> str:
        return "29999999"


async def test_an_offer_is_a_kind_of_machine_in_a_country_at_the_price_of_the_cheapest_few(cloud: VastCloud) -> None:
    provider = vast(cloud, disk_gib=73)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    shown = {(o.instance_type, o.region, o.capacity): o for o in offers}
    h100 = shown["1x H100 SXM", "RO", "on_demand"]
    assert {key[:2] for key in shown} == {("1x H100 SXM", "RO"), ("4x RTX 4090", "US"), ("1x RTX 4090", "unknown")}
    assert (h100.price.gpu_usd_per_hour, h100.count, h100.gpu_model, h100.gpu_memory_gib) == (2.15, 4, "H100", 80)
    assert h100.price.disk_usd_per_hour == pytest.approx(0.015)
    assert shown["1x H100 SXM", "RO", "spot"].price.gpu_usd_per_hour == pytest.approx(0.946)


@pytest.mark.parametrize(
    ("said", "region"),
    [("Bucharest, RO", "RO"), (", US", "US"), ("London, UK", "GB"), ("Hidden", "unknown"), ("X, Romania", "unknown")],
)
def test_the_country_of_a_machine_is_never_guessed(said: str, region: str) -> None:
    assert region_of(said) == region


async def test_a_machine_whose_country_is_unknown_lies_in_no_jurisdiction(cloud: VastCloud) -> None:
    provider = vast(cloud)

    offer = await offer_of(provider, region="unknown")

    await provider.close()
    assert offer.jurisdiction == ""


@pytest.mark.parametrize("price", [0, -1, "free", None])
async def test_a_machine_without_a_sane_price_is_no_offer_and_hides_no_other(cloud: VastCloud, price: Any) -> None:
    garbled = ask(1, "L40S", 1, 1.0, "Oslo, NO", dph_base=price, min_bid=price, dph_total=1.0)
    cloud.asks = [garbled, ask(2, "H100 SXM", 1, 2.0, "Oslo, NO")]
    provider = vast(cloud)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {offer.gpu_model for offer in offers} == {"H100"}


async def test_what_the_operator_does_not_want_is_not_offered(cloud: VastCloud) -> None:
    provider = vast(cloud, verified=False, datacenter_only=True)
    other = vast(cloud, min_reliability=0.999)

    offers = await provider.offers(OfferQuery())
    none = await other.offers(OfferQuery())

    await provider.close()
    await other.close()
    assert {offer.region for offer in offers} == {"US"}
    assert list(none) == []


async def test_the_cheapest_machine_is_rented_that_the_job_does_not_avoid(cloud: VastCloud) -> None:
    provider = vast(cloud)
    intent = await an_intent(provider, avoid=("601", "602"))

    handle = await provider.create(intent)

    view = await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    await provider.close()
    assert view.addresses == {"machine": "603", "public": "127.0.0.1"}
    assert view.ssh is not None
    assert (view.ssh.host, view.ssh.port, view.ssh.user) == ("127.0.0.1", 40022, "root")


async def test_a_machine_that_is_dearer_than_offered_or_in_another_country_is_not_rented(cloud: VastCloud) -> None:
    provider = vast(cloud)
    intent = await an_intent(provider)
    cloud.asks = [ask(1, "H100 SXM", 1, 2.2, "Iasi, RO"), ask(2, "H100 SXM", 1, 1.0, "Texas, US")]

    with pytest.raises(ProviderError, match=r"nobody lets a 1x H100 SXM in RO for 2\.15 USD") as refused:
        await provider.create(intent)

    await provider.close()
    assert (refused.value.fault, refused.value.scope) == (Fault.NO_CAPACITY, Scope.OFFER)
    assert cloud.nodes() == []


async def test_a_machine_that_another_takes_in_between_is_no_capacity(cloud: VastCloud) -> None:
    provider = vast(cloud)
    intent = await an_intent(provider)
    search = cloud._search

    def raced(request: Request) -> Reply:
        reply = search(request)
        cloud.asks.pop(0)
        return reply

    cloud._search = raced  # type: ignore[method-assign]
    with pytest.raises(ProviderError, match="404 invalid_args: error 404/3603: no_such_ask") as refused:
        await provider.create(intent)

    await provider.close()
    assert (refused.value.fault, refused.value.may_have_created) == (Fault.NO_CAPACITY, False)


async def test_nodes_that_are_made_at_once_take_a_machine_each(cloud: VastCloud) -> None:
    provider = vast(cloud)
    first = await an_intent(provider)
    intents = [make_intent(first.tags["deployment"], first.offer, first.launch) for _ in range(4)]

    handles = await asyncio.gather(*(provider.create(intent) for intent in intents))

    await provider.close()
    assert len(set(handles)) == 4
    assert {node.extra["ask"] for node in cloud.nodes()} == {101, 102, 103, 104}


async def test_spot_capacity_is_bid_for_and_says_so_when_it_is_lost(cloud: VastCloud) -> None:
    provider = vast(cloud)
    intent = await an_intent(provider, "spot")
    handle = await provider.create(intent)
    running = await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    cloud.preempt(handle)

    lost = await provider.get(handle)

    await provider.close()
    body = next(call.json() for call in cloud.calls if call.method == "PUT")
    assert body["price"] == 0.88
    assert body["cancel_unavail"] is True
    assert running.billed_usd_per_hour == pytest.approx(0.88 + 100 * 0.15 / 730)
    assert (lost.condition, lost.ssh) == (NodeCondition.STOPPED, None)
    assert "bid more" in lost.reason


async def test_an_on_demand_machine_is_rented_without_a_bid(cloud: VastCloud) -> None:
    provider = vast(cloud)
    await provider.create(await an_intent(provider))
    await provider.close()

    body = next(call.json() for call in cloud.calls if call.method == "PUT")

    assert "price" not in body
    assert body["runtype"] == "ssh_direct"


async def test_an_instance_that_a_refused_bid_leaves_behind_is_looked_for_and_ended(cloud: VastCloud) -> None:
    provider = vast(cloud)
    intent = await an_intent(provider, "spot")
    search = cloud._search

    def risen(request: Request) -> Reply:
        reply = search(request)
        for one in cloud.asks:
            one["min_bid"] = 1.5
        return reply

    cloud._search = risen  # type: ignore[method-assign]
    with pytest.raises(ProviderError, match="bid is too low") as refused:
        await provider.create(intent)
    await asyncio.sleep(0.1)

    (left,) = await provider.list_owned(intent.tags["deployment"])
    ended = await provider.terminate(left.handle)

    await provider.close()
    assert (refused.value.fault, refused.value.may_have_created) == (Fault.NO_CAPACITY, True)
    assert (left.token, left.condition) == (intent.token, NodeCondition.STOPPED)
    assert ended
    assert cloud.nodes() == []


async def test_a_refusal_with_status_200_is_one(cloud: VastCloud) -> None:
    from_vendor = {"success": False, "error": "no_such_ask", "msg": "it is gone"}
    provider = vast(cloud)
    intent = await an_intent(provider)
    cloud._rent = lambda request: Reply(200, from_vendor)  # type: ignore[method-assign]

    with pytest.raises(ProviderError, match="no_such_ask: it is gone") as refused:
        await provider.create(intent)

    await provider.close()
    assert (refused.value.fault, refused.value.may_have_created) == (Fault.NO_CAPACITY, False)


async def test_a_wrong_key_is_known_though_searches_answer_it_with_404(cloud: VastCloud) -> None:
    provider = vast(cloud, api_key="wrong")

    with pytest.raises(ProviderError, match="Invalid user key") as refused:
        await provider.offers(OfferQuery())

    await provider.close()
    assert (refused.value.fault, refused.value.scope) == (Fault.AUTH, Scope.ACCOUNT)


@pytest.mark.parametrize(
    ("status", "said", "condition", "fault"),
    [
        ("created", "Error response from daemon: OCI runtime create failed: nvidia", NodeCondition.FAILED, None),
        ("loading", "pull access denied for nobody/nothing", NodeCondition.FAILED, Fault.INVALID),
        ("created", "invalid reference format", NodeCondition.FAILED, Fault.INVALID),
        ("loading", "layer 3 of 9", NodeCondition.PENDING, None),
        ("exited", "success", NodeCondition.STOPPED, None),
        ("offline", None, NodeCondition.UNKNOWN, None),
        (None, None, NodeCondition.PENDING, None),
        ("some day's new word", None, NodeCondition.UNKNOWN, None),
    ],
)
async def test_an_instance_that_its_host_cannot_start_has_failed(
    cloud: VastCloud, status: str | None, said: str | None, condition: NodeCondition, fault: Fault | None
) -> None:
    provider = vast(cloud)
    handle = await provider.create(await an_intent(provider))
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    cloud.nodes()[0].extra |= {"actual_status": status, "status_msg": said}

    view = await provider.get(handle)

    await provider.close()
    assert (view.condition, view.fault) == (condition, fault)


async def test_the_start_script_puts_both_keys_in_place_and_no_shell_reads_them(
    cloud: VastCloud, tmp_path: Path
) -> None:
    provider = vast(cloud)
    public = "ssh-ed25519 AAAA $(touch pwned)'\""
    private = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"
    launch = Launch(("{python}", "agent.pyz"), {"agent.pyz": b"x" * 300_000})
    await provider.create(await an_intent(provider, public_key=public, host_key=private, launch=launch))
    await provider.close()
    body = next(call.json() for call in cloud.calls if call.method == "PUT")
    (tmp_path / "etc/ssh").mkdir(parents=True)
    (tmp_path / "etc/ssh/ssh_host_rsa_key").write_text("of the image")
    script = body["onstart"].replace("/root", f"{tmp_path}/root").replace("/etc", f"{tmp_path}/etc")
    commands = script.replace("systemctl restart ssh", "true").replace("chown -R root:", "true")

    await asyncio.to_thread(subprocess.run, ["sh", "-ec", commands], cwd=tmp_path, check=True, timeout=30)

    assert (tmp_path / "root/.ssh/authorized_keys").read_text() == f"{public}\n"
    assert [file.name for file in (tmp_path / "etc/ssh").iterdir()] == ["ssh_host_ed25519_key"]
    assert (tmp_path / "etc/ssh/ssh_host_ed25519_key").read_text() == private
    assert not (tmp_path / "pwned").exists()
    assert "agent" not in str(body)


async def test_an_option_that_no_machine_meets_is_no_capacity_and_an_unknown_one_is_named(cloud: VastCloud) -> None:
    provider = vast(cloud)
    newer = await an_intent(provider, options={"min_cuda_version": "13.1"})
    unknown = await an_intent(provider, options={"disc_gib": 5})

    faults = []
    for intent in (newer, unknown):
        with pytest.raises(ProviderError) as refused:
            await provider.create(intent)
        faults.append((refused.value.fault, "placement.options.vast.disc_gib" in refused.value.detail))

    await provider.close()
    assert faults == [(Fault.NO_CAPACITY, False), (Fault.INVALID, True)]
    assert cloud.nodes() == []


async def test_a_limit_in_plain_text_is_known_as_one(cloud: VastCloud) -> None:
    provider = vast(cloud)
    cloud.strike(CloudFault.RATE_LIMITED_SILENT, times=100)

    with pytest.raises(ProviderError, match="too frequent") as refused:
        await provider.offers(OfferQuery())

    await provider.close()
    assert (refused.value.fault, refused.value.scope) == (Fault.RATE_LIMITED, Scope.ACCOUNT)
