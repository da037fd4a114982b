"""What the search leaves out before it computes anything changes no answer: it is compared with one that leaves out
nothing and remembers nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from planner.test_search import LLAMA_8B, SMALL, document, market
from shunter_planner import Block, Candidate, Facts, History, Plan, Rejection, plan
from shunter_planner.fitting import fit
from shunter_planner.matching import mismatch
from shunter_planner.search.machines import Machine, machine_of
from shunter_planner.search.quotes import Place
from shunter_planner.search.sizing import Sized, Sizer, TooLarge
from shunter_planner.values import as_json
from shunter_providers.contract import Availability, Scope
from shunter_schemas.job import JobSpec
from shunter_schemas.resources import GangShape
from shunter_schemas.states import Reason

PLANNING = import_module("shunter_planner.plan")
INSTANCES = tuple(f"p{number}" for number in range(20))


def every_place(
    document: JobSpec, offers: Sequence[Candidate], facts: Facts, gangs: Sequence[GangShape], rejected: list[Rejection]
) -> Iterator[Place]:
    """Each offer by itself."""
    for candidate in offers:
        offer, shared = candidate.offer, candidate.shared_host
        if (rejection := mismatch(document, candidate)) is not None:
            rejected.append(rejection)
            continue
        verdicts = [fit(document, candidate, gang) for gang in gangs]
        shapes = [one for one in verdicts if not isinstance(one, Rejection)]
        refusals = [one for one in verdicts if isinstance(one, Rejection)]
        if not shapes:
            rejected.append(next((one for one in refusals if not one.final), refusals[0]))
        elif block := next((block for block in facts.blocks if block.covers(candidate)), None):
            rejected.append(
                Rejection(candidate.instance, offer.instance_type, offer.region, "blocked", block.detail, final=False)
            )
        else:
            for shape in shapes:
                nodes, ranks = shape.num_nodes, shape.ranks_per_node
                yield Place(candidate, shape, machine_of(offer, shape.slot_kind, nodes, ranks, shared_host=shared))


class Forgetful:
    """A sizer that computes everything anew for every machine."""

    def __init__(self, *asked: Any) -> None:
        self._asked = asked

    def size(self, machine: Machine) -> Sized | TooLarge:
        return Sizer(*self._asked).size(machine)


def varied(seed: int) -> tuple[JobSpec, list[Candidate], Facts]:
    """Some market and a document for it, every other one with limits, blocks, shared hosts or scarce offers."""
    pick = random.Random(seed)
    parts: dict[str, Any] = {
        "resources": {
            "gpus": pick.choice([1, 4, 8, {"min": 2, "max": 32}, {"min": 4, "max": 64}]),
            "capacity": pick.choice(["on_demand", "spot", "spot_then_on_demand"]),
        },
        "placement": {"objective": pick.choice(["cost", "time", "balanced"])},
        "strategy": pick.choice([{"kind": "auto"}, {"kind": "auto"}, {"kind": "ddp"}, {"kind": "fsdp"}]),
        "limits": pick.choice([{}, {"max_usd_per_hour": 12.0}, {"max_cost_usd": 15.0}, {"max_duration_s": 7200}]),
    }
    offers = [_odd(one, pick) for one in market(pick.choice([5, 60, 150]), seed)]
    offers += [replace(one, instance=pick.choice(INSTANCES)) for one in pick.sample(offers, 3)]
    blocked = pick.choice(offers)
    block = Block(blocked.instance, pick.choice(list(Scope)), Reason.NO_CAPACITY, "gone", "8xH100", "r1")
    blocks = pick.choice([(), (block,)])
    return document(pick.choice([LLAMA_8B, SMALL]), **parts), offers, Facts(instances=INSTANCES, blocks=blocks)


def _odd(one: Candidate, pick: random.Random) -> Candidate:
    offer = one.offer
    if pick.random() < 0.3:
        offer = replace(offer, count=pick.choice([None, 1, 2, 4]), availability=pick.choice(list(Availability)))
    if pick.random() < 0.3:
        offer = replace(offer, price=replace(offer.price, setup_usd=pick.choice([0.0, 3.0])), kind="container")
    if pick.random() < 0.3:  # as dear as the next, or just within what counts as alike
        offer = replace(offer, price=replace(offer.price, gpu_usd_per_hour=pick.choice([8.0, 8.05, 8.08, 8.0801])))
    shared = pick.random() < 0.1
    return replace(one, offer=replace(offer, free=pick.choice([0, 4, 8])) if shared else offer, shared_host=shared)


@pytest.mark.parametrize("seed", range(60))
def test_the_answer_is_that_of_a_search_that_leaves_out_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, offers, facts = varied(seed)

    quick = plan(spec, offers, facts, History())
    monkeypatch.setattr(PLANNING, "places_of", every_place)
    monkeypatch.setattr(PLANNING, "Sizer", Forgetful)
    exhaustive = plan(spec, offers, facts, History())

    assert as_json(quick) == as_json(exhaustive)


def test_the_markets_of_that_comparison_are_planned_and_refused_for_many_reasons() -> None:
    answers = [plan(*varied(seed), History()) for seed in range(60)]

    reasons = {reason for answer in answers for reason in answer.rejected_by}

    assert sum(isinstance(answer, Plan) for answer in answers) > 30
    assert reasons > {"blocked", "capacity", "cost", "gpu_memory_needed", "none", "price", "too_small"}


def test_offers_that_are_dearer_on_the_same_hardware_are_not_sized() -> None:
    sized = []

    class Counting(Forgetful):
        def size(self, machine: Machine) -> Sized | TooLarge:
            sized.append(machine)
            return super().size(machine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PLANNING, "Sizer", Counting)
        plan(document(), list(market(5000)), Facts(instances=INSTANCES), History())

    # 11 cards, on a node of 8 or on smaller ones over 3 kinds of network.
    assert len(sized) == len(set(sized)) == 11 * (1 + 3 * 3)
