"""The simulated cloud: the conformance kit with bare nodes, its faults, its market, its bill."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shunter_providers import contract
from shunter_providers.contract import Availability, Intent, Launch, NodeCondition, OfferQuery, ProviderError
from shunter_providers.registry import load_plugin
from shunter_providers.simulated import SimulatedProvider
from shunter_providers.simulated.clock import CloudClock
from shunter_providers.simulated.faults import Kind
from shunter_providers.testing import ProviderConformance, make_intent
from shunter_schemas.ids import new_deployment_id, new_node_token
from support.simulated_clouds import NO_LAUNCH, an_intent, cloud, entries


@pytest.fixture
def deployment() -> str:
    return new_deployment_id()


class TestWithBareNodes(ProviderConformance):
    @pytest.fixture
    def provider(self, tmp_path: Path) -> SimulatedProvider:
        return cloud(tmp_path, boot_s=0.1)

    @pytest.fixture
    def launch(self) -> Launch:
        return NO_LAUNCH


async def test_a_node_without_its_image_fails_and_the_cloud_says_why(tmp_path: Path, deployment: str) -> None:
    provider = cloud(tmp_path, faults=[{"fault": "no_image"}])

    handle = await provider.create(await an_intent(provider, deployment))

    (view,) = await provider.list_owned(deployment)
    assert (view.handle, view.condition, view.fault) == (handle, NodeCondition.FAILED, contract.Fault.INVALID)
    assert "image" in view.reason


async def test_a_node_in_the_queue_says_so_and_costs_nothing(tmp_path: Path, deployment: str) -> None:
    provider = cloud(tmp_path, faults=[{"fault": "queued", "delay_s": 3600}])
    await provider.create(await an_intent(provider, deployment))

    (view,) = await provider.list_owned(deployment)

    (entry,) = entries(provider)
    assert (view.condition, view.billed_usd_per_hour) == (NodeCondition.QUEUED, 0.0)
    assert entry.cost_usd(entry.created_at + 3600.0) == 0.0
    assert entry.cost_usd(entry.created_at + 7200.0) == pytest.approx(entry.usd_per_hour)


async def test_books_of_an_earlier_version_are_gone_on_with(tmp_path: Path, deployment: str) -> None:
    before = cloud(tmp_path)
    handle = await before.create(await an_intent(before, deployment))
    with closing(sqlite3.connect(before.books.path)) as connection:
        for column in ("queued_until", "fails_for"):
            connection.execute(f"ALTER TABLE entries DROP COLUMN {column}")

    after = cloud(tmp_path)

    assert (await after.get(handle)).condition is NodeCondition.RUNNING
    assert (await after.create(await an_intent(after, deployment))) != handle


@pytest.mark.parametrize("runs", [False, True])
def test_whether_jobs_may_name_an_image_is_a_setting_of_each_cloud(tmp_path: Path, runs: bool) -> None:
    assert cloud(tmp_path, runs_images=runs).capabilities.runs_images is runs
    assert SimulatedProvider.capabilities.runs_images is False


def test_the_page_about_it_tells_of_every_fault() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operating" / "simulated.md").read_text()

    assert [kind for kind in Kind if f"`{kind}`" not in page.partition("| fault |")[2]] == []


def test_it_is_an_installed_plugin() -> None:
    assert load_plugin("simulated") is SimulatedProvider


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"boot_s": -1}, "boot_s"),
        ({"bots": 1}, "bots"),
        ({"types": [{"name": "odd", "usd_per_hour": 1, "gpus": 1, "cpu_slots": 2}]}, "odd"),
        ({"types": [{"name": "free", "usd_per_hour": 0, "cpu_slots": 2}]}, "usd_per_hour"),
        ({"faults": [{"fault": "stuck", "verb": "create"}]}, "terminate only"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ProviderError, match=named) as refused:
        cloud(tmp_path, **settings)

    assert refused.value.fault is contract.Fault.INVALID


async def test_two_accounts_of_one_cloud_share_its_capacity_and_do_not_see_each_other(
    tmp_path: Path, deployment: str
) -> None:
    types = [{"name": "only", "usd_per_hour": 1.0, "cpu_slots": 2, "nodes_per_region": 1}]
    one, other = (cloud(tmp_path, cloud="both", account=name, types=types) for name in ("a", "b"))
    handle = await one.create(await an_intent(one, deployment))

    with pytest.raises(ProviderError) as refused:
        await other.create(await an_intent(other, deployment))

    assert (refused.value.fault, refused.value.scope) == (contract.Fault.NO_CAPACITY, contract.Scope.REGION)
    assert [view.handle for view in await one.list_owned(deployment)] == [handle]
    assert await other.list_owned(deployment) == []
    assert (await other.offers(OfferQuery()))[0].availability is Availability.NONE


async def test_a_quota_counts_gpus(tmp_path: Path, deployment: str) -> None:
    provider = cloud(tmp_path, quota_gpus=8)
    h100 = next(offer for offer in await provider.offers(OfferQuery()) if offer.gpus == 8)
    await provider.create(make_intent(deployment, h100, NO_LAUNCH))

    with pytest.raises(ProviderError) as refused:
        await provider.create(make_intent(deployment, h100, NO_LAUNCH))

    assert (refused.value.fault, refused.value.scope) == (contract.Fault.QUOTA, contract.Scope.ACCOUNT)


async def test_a_lost_reply_leaves_a_node_that_is_found_by_its_token(tmp_path: Path, deployment: str) -> None:
    provider = cloud(tmp_path, faults=[{"fault": "lost_reply", "verb": "create"}])
    intent = await an_intent(provider, deployment)

    with pytest.raises(ProviderError) as lost:
        await provider.create(intent)

    assert lost.value.may_have_created
    assert [view.token for view in await provider.list_owned(deployment)] == [intent.token]


async def test_a_node_that_shows_late_gets_a_twin_when_it_is_asked_for_again(tmp_path: Path, deployment: str) -> None:
    provider = cloud(tmp_path, faults=[{"fault": "late", "delay_s": 0.3}])
    intent = await an_intent(provider, deployment)
    first = await provider.create(intent)
    unseen = await provider.list_owned(deployment)

    second = await provider.create(intent)

    assert unseen == []
    assert first != second
    await asyncio.sleep(0.35)
    assert {view.handle for view in await provider.list_owned(deployment)} == {first, second}


async def test_a_request_that_is_carried_out_twice_makes_twins(tmp_path: Path, deployment: str) -> None:
    provider = cloud(tmp_path, faults=[{"fault": "twin"}])
    intent = await an_intent(provider, deployment)

    await provider.create(intent)

    assert [view.token for view in await provider.list_owned(deployment)] == [intent.token] * 2


async def test_a_half_made_node_leaves_a_disk_that_bills_until_it_is_terminated(
    tmp_path: Path, deployment: str
) -> None:
    provider = cloud(tmp_path, faults=[{"fault": "half_made"}])

    with pytest.raises(ProviderError) as failed:
        await provider.create(await an_intent(provider, deployment))

    assert failed.value.may_have_created
    (disk,) = await provider.list_owned(deployment)
    assert disk.condition is NodeCondition.STOPPED
    assert disk.billed_usd_per_hour
    assert await provider.terminate(disk.handle)
    assert await provider.list_owned(deployment) == []


async def test_a_node_may_leave_its_disk_behind(tmp_path: Path, deployment: str) -> None:
    provider = cloud(tmp_path, faults=[{"fault": "left_over"}])
    handle = await provider.create(await an_intent(provider, deployment))

    await provider.terminate(handle)

    assert [view.condition for view in await provider.list_owned(deployment)] == [NodeCondition.STOPPED]


async def test_a_stuck_termination_says_not_yet_and_bills_on(tmp_path: Path, deployment: str) -> None:
    provider = cloud(tmp_path, faults=[{"fault": "stuck", "delay_s": 0.3}])
    handle = await provider.create(await an_intent(provider, deployment))

    answers = [await provider.terminate(handle), await provider.terminate(handle)]
    await asyncio.sleep(0.35)
    answers.append(await provider.terminate(handle))

    assert answers == [False, False, True]
    (entry,) = entries(provider)
    assert entry.gone_at - entry.created_at >= 0.3


async def test_a_preempted_node_is_gone_by_itself_and_stops_to_bill(tmp_path: Path, deployment: str) -> None:
    provider = cloud(tmp_path, faults=[{"fault": "preempted", "delay_s": 0.1}])
    handle = await provider.create(await an_intent(provider, deployment))
    before = await provider.get(handle)
    await asyncio.sleep(0.15)

    after = await provider.get(handle)

    assert before.condition is NodeCondition.RUNNING
    assert (after.condition, after.reason) == (NodeCondition.GONE, "preempted")
    (entry,) = entries(provider)
    assert entry.cost_usd(entry.created_at + 3600.0) == entry.cost_usd(entry.preempted_at)


@pytest.mark.parametrize(
    ("fault", "verb", "expected"),
    [
        ("rate_limited", "offers", contract.Fault.RATE_LIMITED),
        ("server_error", "list_owned", contract.Fault.TRANSIENT),
        ("auth", "whoami", contract.Fault.AUTH),
        ("payment", "create", contract.Fault.PAYMENT),
        ("quota", "create", contract.Fault.QUOTA),
    ],
)
async def test_a_refused_call_does_nothing(
    tmp_path: Path, deployment: str, fault: str, verb: str, expected: contract.Fault
) -> None:
    intent = await an_intent(cloud(tmp_path, cloud="calm"), deployment)
    provider = cloud(tmp_path, faults=[{"fault": fault, "verb": verb, "retry_after_s": 7}])
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "offers": lambda: provider.offers(OfferQuery()),
        "list_owned": lambda: provider.list_owned(deployment),
        "whoami": provider.whoami,
        "create": lambda: provider.create(intent),
    }

    with pytest.raises(ProviderError) as refused:
        await calls[verb]()

    assert (refused.value.fault, refused.value.retry_after_s) == (expected, 7)
    assert entries(provider) == []


async def test_rules_count_calls_across_processes_and_restarts(tmp_path: Path) -> None:
    script = [{"fault": "server_error", "verb": "whoami", "after": 1, "times": 2}]
    outcomes = []

    for _ in range(5):
        try:
            outcomes.append((await cloud(tmp_path, faults=script).whoami()).account)
        except ProviderError as refused:
            outcomes.append(str(refused.fault))

    assert outcomes == ["simulated", "transient", "transient", "simulated", "simulated"]


async def test_a_script_file_replaces_the_settings_while_the_cloud_runs(tmp_path: Path) -> None:
    provider = cloud(tmp_path)
    await provider.whoami()
    (tmp_path / "simulated" / "sim.faults.json").write_text(json.dumps([{"fault": "auth", "times": None}]))

    with pytest.raises(ProviderError) as refused:
        await provider.whoami()

    assert refused.value.fault is contract.Fault.AUTH


async def test_the_same_seed_plays_the_same_faults(tmp_path: Path) -> None:
    script = [{"fault": "server_error", "verb": "whoami", "times": None, "probability": 0.5}]

    async def played(name: str, seed: int) -> list[bool]:
        provider = cloud(tmp_path, cloud=name, seed=seed, faults=script)
        return [isinstance(await _caught(provider), ProviderError) for _ in range(20)]

    first, second, other = await played("one", 3), await played("two", 3), await played("three", 4)

    assert first == second != other
    assert 3 < sum(first) < 17


async def test_prices_and_capacity_move_with_time_but_not_with_the_asker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"price_drift": 0.3, "capacity_swing": 0.9, "period_s": 10.0}
    provider, again = cloud(tmp_path, **settings), cloud(tmp_path, **settings)
    seen = []

    for at in (1000.0, 1001.0, 2000.0):
        monkeypatch.setattr(CloudClock, "now", lambda _, at=at: at)
        seen.append([(offer.price, offer.count) for offer in await provider.offers(OfferQuery())])
        assert seen[-1] == [(offer.price, offer.count) for offer in await again.offers(OfferQuery())]

    assert seen[0] == seen[1] != seen[2]


async def test_a_dearer_node_bills_more_than_was_offered(tmp_path: Path, deployment: str) -> None:
    provider = cloud(tmp_path, faults=[{"fault": "dearer", "factor": 2.0}])
    intent = await an_intent(provider, deployment)

    view = await provider.get(await provider.create(intent))

    assert view.billed_usd_per_hour == pytest.approx(2.0 * intent.offer.price.usd_per_hour)


async def test_processes_that_create_at_once_never_exceed_the_capacity(tmp_path: Path, deployment: str) -> None:
    types = [{"name": "few", "usd_per_hour": 1.0, "cpu_slots": 2, "nodes_per_region": 5}]
    provider = cloud(tmp_path, types=types)
    intent = await an_intent(provider, deployment)
    context = multiprocessing.get_context("spawn")

    with context.Pool(3) as pool:
        made = await asyncio.to_thread(pool.map, _create_four, [(str(tmp_path), types, intent)] * 3)
        pool.close()
        pool.join()

    assert sum(made) == 5
    assert len(await provider.list_owned(deployment)) == 5


async def _caught(provider: SimulatedProvider) -> object:
    try:
        return await provider.whoami()
    except ProviderError as refused:
        return refused


def _create_four(what: tuple[str, list[dict[str, Any]], Intent]) -> int:
    folder, types, intent = what

    async def run() -> int:
        provider, made = cloud(Path(folder), types=types), 0
        deployment = intent.tags["deployment"]
        for _ in range(4):
            try:
                await provider.create(replace(intent, token=new_node_token(deployment)))
            except ProviderError as refused:
                if refused.fault is not contract.Fault.NO_CAPACITY:
                    raise
            else:
                made += 1
        return made

    return asyncio.run(run())


async def test_setting_the_clock_of_this_machine_does_not_move_the_clouds(
    tmp_path: Path, deployment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = cloud(tmp_path)
    await provider.create(await an_intent(provider, deployment))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 7 * 3600)

    another_process = cloud(tmp_path)
    await another_process.create(await an_intent(another_process, deployment))

    first, second = entries(provider)
    assert 0 <= second.created_at - first.created_at < 60
