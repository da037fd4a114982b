"""Nodes that cannot be replaced: the gang goes on on those that live, or elsewhere, or waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shunter_planner.values import as_json, plan_from_json
from shunter_providers.contract import Fault, Offer, ProviderError
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import NodeState, State
from shunter_workers.deciding import decide
from shunter_workers.decisions import Act, Create, Settle
from shunter_workers.settling import settle
from shunter_workers.states.fewer import PATIENCE_S
from shunter_workers.states.queued import LONGEST_RETRY_S
from shunter_workers.view import Memory, View
from support.documents import tiny_lm
from support.views import CLOUD_OFFER, NOW, brief, job, market, on_cloud_node, part, plan_on, view

OTHER_OFFER = replace(CLOUD_OFFER, instance_type="2xA100", region="eu-2", gpu_model="A100")
REFUSED: dict[str, Any] = {
    "instance": "cloud",
    "scope": "offer",
    "reason": "no_capacity",
    "detail": "none left",
    "instance_type": CLOUD_OFFER.instance_type,
    "region": CLOUD_OFFER.region,
    "until": NOW.timestamp() + 100,
}


def spec(min_gpus: int | None, global_size: int = 24) -> dict[str, Any]:
    """A training on three nodes of two GPUs."""
    document: dict[str, Any] = {**tiny_lm(), "resources": {"nodes": 3, "gpus_per_node": 2}}
    document["workload"] |= {"batch": {"global_size": global_size}}
    return {**document, "recovery": {"min_gpus": min_gpus}}


PATIENT: dict[str, Any] = {"short_since": NOW.timestamp() - PATIENCE_S}
"""All GPUs were waited for long enough."""


def after_a_loss(
    min_gpus: int | None, *offers: Offer, kept: tuple[int, ...] = (0, 2), global_size: int = 24, **memory: Any
) -> View:
    """The nodes with these ranks are left, and have come to rest."""
    nodes = [on_cloud_node(rank=rank, desired_phase=Phase.STOP) for rank in kept]
    known = Memory(**{"ordered_generation": 1, "started": True, "blocks": [REFUSED], **memory})
    plan = as_json(plan_on(CLOUD_OFFER, num_nodes=3))
    row = job(State.RECOVERING, spec(min_gpus, global_size), memory=known, plan=plan, started_at=NOW)
    return view(row, *nodes, parts=[part(one, drained=True) for one in nodes], market=market(*offers))


def test_ranks_are_counted_anew_over_the_nodes_that_live() -> None:
    decision = decide(after_a_loss(4, CLOUD_OFFER, **PATIENT), NOW)

    assert brief(decision) == ["ranks node_0=0,node_2=1"]
    assert isinstance(decision, Settle)
    smaller = plan_from_json(decision.change.set["plan"])
    assert (smaller.num_nodes, smaller.ranks_per_node, smaller.world_size) == (2, 2, 4)
    ((kind, told),) = decision.change.events
    assert (kind, told["message"]) == ("job.resized", "going on with 4 GPUs instead of 6")


def test_a_node_too_many_for_the_batch_is_let_go() -> None:
    decision = decide(after_a_loss(2, CLOUD_OFFER, global_size=6, **PATIENT), NOW)

    assert brief(decision) == ["ranks node_0=0", "release node_2"]


@pytest.mark.parametrize("min_gpus", [None, 5])
def test_without_leave_to_shrink_replacements_are_asked_for_again(min_gpus: int | None) -> None:
    assert brief(decide(after_a_loss(min_gpus, CLOUD_OFFER), NOW)) == ["intend 1", "planned"]


def test_where_nothing_was_refused_replacements_come_first() -> None:
    assert brief(decide(after_a_loss(2, CLOUD_OFFER, blocks=()), NOW)) == ["intend 1", "planned"]


def test_a_whole_gang_elsewhere_is_better_than_waiting() -> None:
    assert brief(decide(after_a_loss(None, CLOUD_OFFER, OTHER_OFFER), NOW)) == ["release node_0,node_2"]


def test_with_no_node_left_fewer_are_taken_where_all_cannot_be_had() -> None:
    two = replace(OTHER_OFFER, count=2)

    decision = decide(after_a_loss(2, CLOUD_OFFER, two, kept=(), **PATIENT), NOW)

    assert brief(decision)[-1] == "planned"
    assert isinstance(decision, Settle)
    smaller = plan_from_json(decision.change.set["plan"])
    assert smaller.world_size in (2, 4)
    assert ("job.resized", smaller.world_size) in [
        (kind, told.get("world_size")) for kind, told in decision.change.events
    ]


@pytest.mark.parametrize("kept", [(0, 2), ()], ids=["with nodes that live", "with none"])
def test_all_gpus_are_waited_for_a_while_before_fewer_will_do(kept: tuple[int, ...]) -> None:
    two = replace(OTHER_OFFER, count=2)

    at_first = decide(after_a_loss(2, CLOUD_OFFER, two, kept=kept), NOW)
    almost = decide(after_a_loss(2, CLOUD_OFFER, two, kept=kept, short_since=PATIENT["short_since"] + 1), NOW)

    for waits in (at_first, almost):
        assert isinstance(waits, Settle)
        assert not waits.writes
        assert waits.change.trigger is None
        assert 0 < (waits.change.next_in_s or 0) <= LONGEST_RETRY_S
    assert at_first.memory is not None  # type: ignore[union-attr]
    assert at_first.memory["short_since"] == NOW.timestamp()  # type: ignore[union-attr]


def test_whoever_waits_for_all_gpus_and_gets_them_goes_on_with_all() -> None:
    waited = after_a_loss(2, CLOUD_OFFER, OTHER_OFFER, kept=(), short_since=PATIENT["short_since"] + 1)

    decision = decide(waited, NOW)

    assert isinstance(decision, Settle)
    assert plan_from_json(decision.change.set["plan"]).world_size == 6
    assert "job.resized" not in [kind for kind, _ in decision.change.events]


def test_a_refusal_while_recovering_is_remembered() -> None:
    living, missing = on_cloud_node(rank=0), on_cloud_node(NodeState.CREATING, rank=1)
    known = Memory(ordered_generation=1, started=True)
    row = job(State.PROVISIONING, spec(2), memory=known, plan=as_json(plan_on(CLOUD_OFFER, num_nodes=2)))

    error = ProviderError(Fault.NO_CAPACITY, "none left")
    decision = settle(view(row, living, missing), Act(Create(missing)), error, NOW)

    assert brief(decision)[-1] == "node_lost"
    assert isinstance(decision, Settle)
    assert decision.memory is not None
    assert [block["reason"] for block in decision.memory["blocks"]] == ["no_capacity"]
