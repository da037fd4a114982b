"""The price is read again before a node is made: what is dearer is not made, and the job is planned anew."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from shunter_planner.predictions import Prediction
from shunter_planner.values import as_json
from shunter_providers.contract import Instance, Offer, Price
from shunter_providers.registry import Registry
from shunter_schemas.states import NodeState, State
from shunter_workers.accounts import Accounts
from shunter_workers.deciding import decide
from shunter_workers.decisions import Act, Settle
from shunter_workers.offers import Offers
from shunter_workers.view import Memory, Requoted, View
from support.views import CLOUD_OFFER, NOW, brief, job, on_cloud, on_cloud_node, plan_on, view

ORDERED = (on_cloud_node(NodeState.BOOTING, rank=0), on_cloud_node(NodeState.INTENDED, rank=1))
"""The first of two nodes is made, at 6 USD an hour as planned; the second is next."""


def at(usd_per_hour: float, setup_usd: float = 0.0) -> Offer:
    return replace(CLOUD_OFFER, price=Price(gpu_usd_per_hour=usd_per_hour, setup_usd=setup_usd))


def about_to_make(
    found: Offer | None, *, first: bool = False, started: bool = False, low_usd: float = 0.0, **limits: float
) -> View:
    plan = replace(plan_on(CLOUD_OFFER, num_nodes=2), prediction=Prediction(cost_low_usd=low_usd) if low_usd else None)
    memory = Memory(ordered_generation=1, started=started)
    row = job(State.PROVISIONING, on_cloud(limits=limits), memory=memory, plan=as_json(plan))
    nodes = [replace(one, state=NodeState.INTENDED, handle=None) for one in ORDERED] if first else ORDERED
    return view(row, *nodes, requoted=Requoted(found), price_tolerance=0.1)


def refusal_of(decision: Any) -> dict[str, Any]:
    assert isinstance(decision, Settle)
    ((_, told),) = [event for event in decision.change.events if event[0] == "node.price_refused"]
    return dict(told)


@pytest.mark.parametrize("usd_per_hour", [5.0, 6.0, 6.6])
def test_a_price_within_the_tolerance_is_taken_and_billed_as_it_is_now(usd_per_hour: float) -> None:
    decision = decide(about_to_make(at(usd_per_hour)), NOW)

    assert brief(decision) == ["begin node_1", "create node_1"]
    assert isinstance(decision, Act)
    assert decision.writes[0].usd_per_hour == usd_per_hour  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(replace(about_to_make(None), requoted=None), id="the provider cannot be asked now"),
        pytest.param(about_to_make(None), id="the gang's other nodes may be the last that there were"),
    ],
)
def test_where_the_price_is_not_known_now_the_call_itself_tells(seen: View) -> None:
    assert brief(decide(seen, NOW)) == ["begin node_1", "create node_1"]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (about_to_make(at(6.7)), "costs 6.7 USD an hour now, 12 % more than the 6 that was planned; at most 10 % more"),
        (about_to_make(at(6.0, setup_usd=50.0)), "costs 50.00 USD to set up now, 0.00 were planned"),
        (about_to_make(at(6.3), max_usd_per_hour=12.2), "12.30 USD an hour, limits.max_usd_per_hour is 12.20"),
        (about_to_make(at(6.5), low_usd=50.0, max_cost_usd=52.0), "54.17 USD are predicted now, limits.max_cost_usd"),
        (about_to_make(None, first=True), "2xH100 in eu-1 is not offered any more"),
    ],
)
def test_what_is_dearer_than_planned_or_gone_is_not_made_and_the_job_planned_anew(seen: View, words: str) -> None:
    decision = decide(seen, NOW)

    assert brief(decision) == ["release node_0,node_1", "capacity_lost"]
    assert words in refusal_of(decision)["detail"]


def test_only_what_is_gone_is_passed_over_by_the_next_plan() -> None:
    dearer, gone = decide(about_to_make(at(9.0)), NOW), decide(about_to_make(None, first=True), NOW)

    assert isinstance(dearer, Settle)
    assert isinstance(gone, Settle)
    until = [decision.memory["blocks"][0]["until"] - NOW.timestamp() for decision in (dearer, gone) if decision.memory]
    assert until == [0.0, 120.0]


@pytest.mark.parametrize(
    "seen",
    [about_to_make(at(6.7), started=True), about_to_make(at(6.1), started=True, max_usd_per_hour=12.0)],
    ids=["above the tolerance", "above the cap"],
)
def test_a_failover_to_a_dearer_node_lets_the_whole_gang_go_and_plans_it_anew(seen: View) -> None:
    decision = decide(seen, NOW)

    assert brief(decision) == ["release node_0,node_1", "node_lost"]
    assert "USD an hour" in refusal_of(decision)["detail"]


async def test_an_offer_is_read_again_only_where_nodes_bill_and_not_for_each_node_of_a_gang(tmp_path: Any) -> None:
    cloud = {"nodes": "bare", "price_drift": 0.0}
    registry = Registry(
        {
            "sim": Instance("sim", "simulated", cloud, str(tmp_path)),
            "here": Instance("here", "local", {}, str(tmp_path)),
        }
    )
    offers = Offers(registry, Accounts(registry), {})
    provider = registry.get("sim")
    asked = 0
    listed = provider.offers

    async def counted(query: Any) -> Any:
        nonlocal asked
        asked += 1
        return await listed(query)

    provider.offers = counted  # type: ignore[method-assign]
    some = (await listed(None))[0]  # type: ignore[arg-type]

    first = await offers.read_again("sim", some)
    again = await offers.read_again("sim", some)
    other = await offers.read_again("sim", replace(some, instance_type="gone"))
    free = await offers.read_again("here", some)
    await registry.close()

    assert first is not None
    assert first.offer is not None
    assert asdict(first.offer.price) == asdict(some.price)
    assert again == first
    assert other == Requoted(None)
    assert free is None
    assert asked == 1
