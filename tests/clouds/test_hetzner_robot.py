"""Hetzner Robot against a fake of its webservice and a real SSH server: the whole kit, and what is peculiar to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import asyncssh
import pytest
import pytest_asyncio
from shunter_providers.clouds.hetzner_robot.provider import HetznerRobotProvider
from shunter_providers.contract import (
    Fault,
    Instance,
    Intent,
    Launch,
    NodeCondition,
    OfferQuery,
    ProviderError,
)
from shunter_providers.testing import CloudConformance, CloudFault, Unpaced, WireCloud, make_intent
from shunter_providers.testing.conformance import listed, until_terminated, wait_for
from shunter_schemas.ids import new_deployment_id
from support.clouds.hetzner_robot import HetznerRobotCloud

PASSWORD = CloudConformance.secret
HOST_KEY = asyncssh.generate_private_key("ssh-ed25519")
JOB_KEY = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()


def robot(cloud: WireCloud, door: int, **settings: Any) -> HetznerRobotProvider:
    account = {"user": "#ws+test", "password": PASSWORD, "usd_per_eur": 1.25, "dist": "Ubuntu with CUDA"}
    chosen = {**account, "base_url": cloud.url, "timeout_s": 5.0, "ssh_port": door, **settings}
    return HetznerRobotProvider(Instance("hetzner-robot", "hetzner-robot", chosen, pacer=Unpaced()))


@pytest.fixture
def cloud() -> Iterator[HetznerRobotCloud]:
    with HetznerRobotCloud(PASSWORD, HOST_KEY) as running:
        yield running


@pytest_asyncio.fixture
async def door() -> AsyncIterator[int]:
    """The port of the SSH server that every server of the fake has."""
    server = await asyncssh.listen("127.0.0.1", 0, server_host_keys=[HOST_KEY])
    yield server.get_port()
    server.close()
    await server.wait_closed()


async def an_intent(provider: HetznerRobotProvider, **changes: Any) -> Intent:
    offer = (await provider.offers(OfferQuery()))[0]
    return replace(make_intent(new_deployment_id(), offer, Launch((), {})), **changes)


class TestHetznerRobot(CloudConformance):
    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with HetznerRobotCloud(PASSWORD, HOST_KEY) as running:
            yield running

    @pytest.fixture
    def provider(self, cloud: WireCloud, door: int) -> HetznerRobotProvider:
        return robot(cloud, door, timeout_s=1.0)

    @pytest.fixture
    def unknown_handle(self) -> str:
        return "B20150121-344957-251478"


async def test_offers_say_what_is_in_them_what_they_cost_once_and_in_which_currency(
    cloud: HetznerRobotCloud, door: int
) -> None:
    provider = robot(cloud, door)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    shown = {
        (o.instance_type, o.gpu_model, o.region, o.jurisdiction, o.price.usd_per_hour, o.price.setup_usd)
        for o in offers
    }
    assert shown == {
        ("GEX44", "RTX-4000-Ada", "FSN1", "DE", 0.372375, 98.75),
        ("GEX44", "RTX-4000-Ada", "HEL1", "FI", 0.372375, 98.75),
        ("GEX130", "RTX-6000-Ada", "NBG1", "DE", 1.682125, 98.75),
    }
    assert {(o.price.currency, o.price.usd_per_unit, o.kind, o.disk_gib) for o in offers} == {
        ("EUR", 1.25, "metal", 1788)
    }
    assert provider.capabilities.spends_setup_fee


async def test_without_a_rate_nothing_is_offered_and_the_setting_is_named(cloud: HetznerRobotCloud, door: int) -> None:
    provider = robot(cloud, door, usd_per_eur=None)

    with pytest.raises(ProviderError, match="usd_per_eur") as refused:
        await provider.offers(OfferQuery())

    await provider.close()
    assert refused.value.fault is Fault.INVALID


async def test_a_system_that_no_product_has_is_refused_with_those_that_there_are(
    cloud: HetznerRobotCloud, door: int
) -> None:
    provider = robot(cloud, door, dist="Ubuntu with Cuda")

    with pytest.raises(ProviderError, match="Ubuntu with CUDA") as refused:
        await provider.offers(OfferQuery())

    await provider.close()
    assert refused.value.fault is Fault.INVALID
    assert "settings.dist" in refused.value.detail


async def test_the_host_key_that_the_server_shows_is_pinned_when_it_is_the_vendors(
    cloud: HetznerRobotCloud, door: int
) -> None:
    provider = robot(cloud, door)
    handle = await provider.create(await an_intent(provider, public_key=JOB_KEY))

    view = await wait_for(provider, handle, NodeCondition.RUNNING, 10)

    await provider.close()
    assert view.ssh is not None
    assert (view.ssh.host, view.ssh.port, view.ssh.user) == ("127.0.0.1", door, "root")
    assert list(view.ssh.host_keys) == [HOST_KEY.export_public_key().decode().strip()]


async def test_a_server_that_shows_another_host_key_has_failed(door: int) -> None:
    with HetznerRobotCloud(PASSWORD) as cloud:
        provider = robot(cloud, door)
        handle = await provider.create(await an_intent(provider))

        view = await wait_for(provider, handle, NodeCondition.FAILED, 10)

        await provider.close()
    assert "host key" in view.reason
    assert view.ssh is None


async def test_a_server_whose_ssh_does_not_answer_is_not_up_yet(cloud: HetznerRobotCloud) -> None:
    provider = robot(cloud, 9)
    handle = await provider.create(await an_intent(provider))

    while (view := await provider.get(handle)).reason in ("not shown yet", "the order is being worked on"):
        pass

    await provider.close()
    assert view.condition is NodeCondition.PENDING
    assert "does not answer" in view.reason


async def test_nodes_of_a_job_share_its_key_which_goes_with_the_last_of_them(
    cloud: HetznerRobotCloud, door: int
) -> None:
    provider = robot(cloud, door)
    handles = [await provider.create(await an_intent(provider, public_key=JOB_KEY)) for _ in range(2)]
    for handle in handles:
        await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    registered = len(cloud.keys)

    await until_terminated(provider, handles[0])
    after_the_first = {key["data"] for key in cloud.keys.values()}
    await until_terminated(provider, handles[1])

    await provider.close()
    assert registered == 3
    assert JOB_KEY in after_the_first
    assert cloud.nodes() == []
    assert cloud.keys == {}


async def test_twins_share_their_mark_which_stays_as_long_as_one_of_them(cloud: HetznerRobotCloud, door: int) -> None:
    provider = robot(cloud, door)
    intent = await an_intent(provider)
    cloud.strike(CloudFault.TWIN)
    await provider.create(intent)
    first, second = await listed(provider, intent.tags["deployment"], 2)
    for twin in (first, second):
        await wait_for(provider, twin.handle, NodeCondition.RUNNING, 10)

    await until_terminated(provider, first.handle)
    marks = [key["name"] for key in cloud.keys.values()]
    cloud.keys.clear()
    left = await provider.list_owned(intent.tags["deployment"])
    await until_terminated(provider, second.handle)

    await provider.close()
    assert marks == [intent.token]
    assert [(view.handle, view.token) for view in left] == [(second.handle, intent.token)]
    assert cloud.nodes() == []


async def test_an_order_that_is_refused_leaves_no_key(cloud: HetznerRobotCloud, door: int) -> None:
    provider = robot(cloud, door)
    intent = await an_intent(provider)
    cloud.strike(CloudFault.NO_CAPACITY)

    with pytest.raises(ProviderError, match="Product not found") as refused:
        await provider.create(intent)

    await provider.close()
    assert refused.value.fault is Fault.NO_CAPACITY
    assert cloud.keys == {}


async def test_an_order_that_is_worked_on_waits_in_a_queue_and_is_cancelled_when_it_is_done() -> None:
    with HetznerRobotCloud(PASSWORD, HOST_KEY, boot_s=float("inf")) as cloud:
        provider = robot(cloud, 9)
        handle = await provider.create(await an_intent(provider))
        view = await wait_for(provider, handle, NodeCondition.QUEUED, 10)

        at_once = await provider.terminate(handle)
        cloud.nodes()[0].up_at = 0.0
        await until_terminated(provider, handle)

        await provider.close()
        assert (view.condition, at_once) == (NodeCondition.QUEUED, False)
        assert cloud.nodes() == []


async def test_a_server_that_can_only_be_cancelled_later_is_not_gone_and_says_until_when(
    cloud: HetznerRobotCloud, door: int
) -> None:
    cloud.earliest = "2099-12-31"
    provider = robot(cloud, door)
    handle = await provider.create(await an_intent(provider))
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)

    is_gone = await provider.terminate(handle)
    view = await provider.get(handle)

    await provider.close()
    dates = [call.body for call in cloud.calls if call.method == "POST" and call.path.endswith("/cancellation")]
    assert (is_gone, view.condition) == (False, NodeCondition.STOPPED)
    assert "2026-12-01" in view.reason
    assert dates == [b"cancellation_date=2099-12-31"]


async def test_a_server_whose_order_is_no_longer_listed_is_known_by_its_name(
    cloud: HetznerRobotCloud, door: int
) -> None:
    provider = robot(cloud, door)
    intent = await an_intent(provider)
    handle = await provider.create(intent)
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    cloud.forgets_orders = True

    views = await provider.list_owned(intent.tags["deployment"])
    another = robot(cloud, door)
    looked_at = await another.get(handle)
    await until_terminated(provider, handle)

    await provider.close()
    await another.close()
    assert looked_at.condition is NodeCondition.RUNNING
    assert cloud.nodes() == []
    assert [(view.handle, view.token, view.condition) for view in views] == [
        (handle, intent.token, NodeCondition.RUNNING)
    ]


async def test_a_page_that_is_not_there_is_no_empty_list(cloud: HetznerRobotCloud, door: int) -> None:
    provider = robot(cloud, door, base_url=f"{cloud.url}/elsewhere")

    with pytest.raises(ProviderError) as refused:
        await provider.list_owned("a")

    await provider.close()
    assert refused.value.fault is Fault.NOT_FOUND
