"""The `ssh` plugin against real hosts with sshd: the conformance kit, and what hosts do."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shunter_providers.contract import (
    Fault,
    Intent,
    Launch,
    NodeCondition,
    Offer,
    OfferQuery,
    ProviderError,
)
from shunter_providers.ssh.provider import SshProvider
from shunter_providers.ssh.settings import HOST_STRIDE
from shunter_providers.testing import ProviderConformance
from shunter_schemas.ids import new_deployment_id, new_node_token
from support.hosts import Pool, make_pool
from support.hosts.host import USER
from support.ssh_pool import host_settings, make_provider, pool_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with make_pool(tmp_path_factory.mktemp("pool"), 2) as made:
        yield made


@pytest.fixture(autouse=True)
def _as_new(pool: Pool) -> None:
    pool.reset()


@pytest.fixture
def provider(pool: Pool, tmp_path: Path) -> SshProvider:
    return make_provider(tmp_path, pool_settings(pool))


def intent_of(offer: Offer, deployment: str, *slots: int) -> Intent:
    return Intent(
        token=new_node_token(deployment),
        tags={"deployment": deployment, "job": "job_1"},
        offer=offer,
        launch=Launch(argv=(), files={}),
        rank=0,
        gang_size=1,
        slots=len(slots),
        slot_indices=slots,
    )


class TestSshProvider(ProviderConformance):
    @pytest.fixture
    def provider(self, pool: Pool, tmp_path: Path) -> SshProvider:
        return make_provider(tmp_path, pool_settings(pool))

    @pytest.fixture
    def launch(self) -> Launch:
        return Launch(argv=(), files={})


async def test_an_offer_shows_what_the_hosts_have(provider: SshProvider, pool: Pool) -> None:
    offers = await provider.offers(OfferQuery())

    (offer,) = offers
    assert (offer.instance_type, offer.count, offer.cpu_slots) == ("cpu-2", 2, 2)
    assert set(offer.host_names) == {host.name for host in pool.hosts}
    assert len(offer.slot_indices) == 4
    assert offer.memory_gib > 0
    assert offer.disk_gib > 0
    await provider.close()


async def test_jobs_share_a_host_by_slot(provider: SshProvider) -> None:
    (offer,) = await provider.offers(OfferQuery())
    deployment = new_deployment_id()
    first, second = offer.slot_indices[:2]

    handles = await asyncio.gather(
        provider.create(intent_of(offer, deployment, first)), provider.create(intent_of(offer, deployment, second))
    )
    with pytest.raises(ProviderError, match="cpu 0 are leased by") as refused:
        await provider.create(intent_of(offer, deployment, first))

    assert refused.value.fault is Fault.NO_CAPACITY
    assert {handle.rpartition("@")[2] for handle in handles} == {handles[0].rpartition("@")[2]}
    await end_all(provider, deployment)


async def test_an_exclusive_host_takes_one_node(pool: Pool, tmp_path: Path) -> None:
    hosts = [host_settings(pool.hosts[0], exclusive=True)]
    provider = make_provider(tmp_path, pool_settings(pool, hosts))
    (offer,) = await provider.offers(OfferQuery())
    deployment = new_deployment_id()
    await provider.create(intent_of(offer, deployment, offer.slot_indices[0]))

    with pytest.raises(ProviderError, match="leased as a whole"):
        await provider.create(intent_of(offer, deployment, offer.slot_indices[1]))

    await end_all(provider, deployment)


async def test_a_host_that_another_deployment_leases_is_refused_and_no_longer_offered(
    provider: SshProvider, pool: Pool, tmp_path: Path
) -> None:
    (offer,) = await provider.offers(OfferQuery())
    theirs, ours = new_deployment_id(), new_deployment_id()
    host = offer.slot_indices[0] // HOST_STRIDE
    await provider.create(intent_of(offer, theirs, offer.slot_indices[0]))
    own = make_provider(tmp_path / "own", pool_settings(pool))

    with pytest.raises(ProviderError, match=f"the host is leased by deployment {theirs}") as refused:
        await own.create(intent_of(offer, ours, offer.slot_indices[1]))

    assert refused.value.fault is Fault.NO_CAPACITY
    (left,) = await own.offers(OfferQuery())
    assert {index // HOST_STRIDE for index in left.slot_indices}.isdisjoint({host})
    assert await own.list_owned(ours) == []
    await end_all(provider, theirs)
    await own.close()


async def test_a_host_with_another_key_than_the_pinned_one_is_refused_by_name(pool: Pool, tmp_path: Path) -> None:
    host, other = pool.hosts
    provider = make_provider(tmp_path, pool_settings(pool, [host_settings(host, host_keys=[other.host_key])]))

    with pytest.raises(ProviderError, match=r"node0: .*another key than the one that is pinned"):
        await provider.offers(OfferQuery())

    await provider.close()


async def test_no_key_is_learned_on_the_way(pool: Pool, tmp_path: Path) -> None:
    provider = make_provider(tmp_path, pool_settings(pool))
    await provider.offers(OfferQuery())

    pool.hosts[0].change_host_key()
    await provider.close()
    provider = make_provider(tmp_path, {**pool_settings(pool), "hosts": pinned_before(pool, provider)})
    (offer,) = await provider.offers(OfferQuery())

    assert offer.host_names == (pool.hosts[1].name,)
    await provider.close()


def pinned_before(pool: Pool, provider: SshProvider) -> list[dict[str, Any]]:
    """The settings of the hosts with the keys that this provider knows."""
    known = {host.name: list(host.host_keys) for host in provider.settings.hosts}
    return [host_settings(host, host_keys=known[host.name]) for host in pool.hosts]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"user": "nobody-here"}, "does not let 'nobody-here' in with this key"),
        ({"python": "/no/such/python3"}, "there is no Python 3.8 or newer there"),
        ({"min_disk_gib": 1e9}, "of its disk are free, at least 1e"),
        ({"base": "/proc/shunter"}, "the folder /proc/shunter cannot be made"),
        ({"gpus": 8}, "it shows 0 GPUs, and the settings say 8"),
        ({"port": 23}, "node0: "),
        ({"memory_gib": 1e6}, "of memory, and the settings say"),
    ],
    ids=["user", "python", "disk", "folder", "gpus", "port", "memory"],
)
async def test_a_host_that_cannot_be_used_is_left_out_with_the_cause(
    pool: Pool, tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    only = make_provider(tmp_path, pool_settings(pool, [host_settings(pool.hosts[0], **changed)]))
    both = make_provider(
        tmp_path, pool_settings(pool, [host_settings(pool.hosts[0], **changed), host_settings(pool.hosts[1])])
    )

    with pytest.raises(ProviderError) as alone:
        await only.offers(OfferQuery())
    (offer,) = await both.offers(OfferQuery())

    assert told in alone.value.detail
    assert alone.value.detail.startswith("node0: ")
    assert offer.host_names == (pool.hosts[1].name,)
    await only.close()
    await both.close()


async def test_a_host_behind_a_firewall_is_left_out(pool: Pool, tmp_path: Path) -> None:
    pool.hosts[0].firewall("tcp dport 22 drop")
    provider = make_provider(tmp_path, pool_settings(pool, connect_timeout_s=1))

    (offer,) = await provider.offers(OfferQuery())

    assert offer.host_names == (pool.hosts[1].name,)
    await provider.close()


async def test_a_host_is_reached_through_a_jump_host(pool: Pool, tmp_path: Path) -> None:
    behind, jump = pool.hosts
    behind.firewall(f"ip saddr {pool.service_address} tcp dport 22 reject")
    settings = pool_settings(pool, [host_settings(behind, jump="door")])
    settings["jump_hosts"] = [{"name": "door", "address": jump.address, "host_keys": [jump.host_key]}]
    provider = make_provider(tmp_path, settings)

    (offer,) = await provider.offers(OfferQuery())

    assert offer.host_names == (behind.name,)
    await provider.close()


async def test_a_jump_host_with_another_key_is_refused_too(pool: Pool, tmp_path: Path) -> None:
    behind, jump = pool.hosts
    settings = pool_settings(pool, [host_settings(behind, jump="door")])
    settings["jump_hosts"] = [{"name": "door", "address": jump.address, "host_keys": [behind.host_key]}]
    provider = make_provider(tmp_path, settings)

    with pytest.raises(ProviderError, match="another key than the one that is pinned"):
        await provider.offers(OfferQuery())

    await provider.close()


async def test_a_user_without_rights_will_do(pool: Pool, tmp_path: Path) -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("there is no Python that users without rights can start")
    hosts = [host_settings(host, python=python) for host in pool.hosts]
    provider = make_provider(tmp_path, pool_settings(pool, hosts, user=USER))
    (offer,) = await provider.offers(OfferQuery())
    deployment = new_deployment_id()

    handle = await provider.create(intent_of(offer, deployment, offer.slot_indices[0]))

    assert (await provider.get(handle)).condition is NodeCondition.RUNNING
    await end_all(provider, deployment)


async def test_a_lease_ends_with_its_host_s_boot(provider: SshProvider, pool: Pool) -> None:
    (offer,) = await provider.offers(OfferQuery())
    deployment = new_deployment_id()
    handle = await provider.create(intent_of(offer, deployment, offer.slot_indices[0]))
    host = next(host for host in pool.hosts if handle.endswith(host.name))

    host.power_off()
    dark = await provider.get(handle)
    listed = await provider.list_owned(deployment)
    host.power_on()
    view = await provider.get(handle)

    assert dark.condition is NodeCondition.UNKNOWN
    assert [(view.handle, view.condition) for view in listed] == [(handle, NodeCondition.UNKNOWN)]
    assert (view.condition, view.reason) == (NodeCondition.GONE, "the host was started anew")
    assert await provider.list_owned(deployment) == []
    await provider.terminate(handle)
    await provider.close()


async def test_a_host_that_stays_dark_while_others_answer_counts_as_failed(pool: Pool, tmp_path: Path) -> None:
    provider = make_provider(tmp_path, pool_settings(pool, down_after_s=0.01, connect_timeout_s=1))
    (offer,) = await provider.offers(OfferQuery())
    deployment = new_deployment_id()
    handle = await provider.create(intent_of(offer, deployment, offer.slot_indices[0]))
    host = next(host for host in pool.hosts if handle.endswith(host.name))
    host.power_off()
    await provider.list_owned(deployment)

    (view,) = await provider.list_owned(deployment)

    assert view.condition is NodeCondition.FAILED
    assert "has not answered" in view.reason
    host.power_on()
    await end_all(provider, deployment)


async def test_a_handle_of_a_host_that_left_the_settings_is_an_error_and_no_proof(
    provider: SshProvider, pool: Pool, tmp_path: Path
) -> None:
    smaller = make_provider(tmp_path, pool_settings(pool, [host_settings(pool.hosts[0])]))
    handle = f"{new_node_token(new_deployment_id())}@{pool.hosts[1].name}"

    for call in (smaller.get(handle), smaller.terminate(handle)):
        with pytest.raises(ProviderError, match=r"is no longer in providers\.pool"):
            await call

    await smaller.close()


async def test_slots_of_two_hosts_are_no_node(provider: SshProvider) -> None:
    (offer,) = await provider.offers(OfferQuery())
    intent = intent_of(offer, new_deployment_id(), offer.slot_indices[0], offer.slot_indices[-1])

    with pytest.raises(ProviderError, match="of no host, or of several") as refused:
        await provider.create(replace(intent))

    assert refused.value.fault is Fault.INVALID
    await provider.close()


async def end_all(provider: SshProvider, deployment: str) -> None:
    for view in await provider.list_owned(deployment):
        assert await provider.terminate(view.handle)
    assert await provider.list_owned(deployment) == []
    await provider.close()
