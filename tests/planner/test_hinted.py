"""What `hints` say of a program of the user's own decides which GPUs it goes on."""

from __future__ import annotations

import pytest
from shunter_planner import Facts, History, Plan, Refusal, plan
from shunter_schemas.job import JobSpec
from shunter_schemas.states import Reason
from support.plans import H100, L40S, script, training

FACTS = Facts(instances=("alpha",))


def plan_for(document: JobSpec) -> Plan | Refusal:
    """L40S is three times cheaper."""
    return plan(document, [L40S, H100], FACTS, History())


def place_of(document: JobSpec) -> str | None:
    found = plan_for(document)
    assert isinstance(found, Plan), found
    return found.offer.gpu_model


def test_a_stated_memory_is_what_a_gpu_must_have() -> None:
    assert place_of(script()) == "L40S"
    assert place_of(script({"memory_gib": 40.0})) == "L40S"
    assert place_of(script({"memory_gib": 62.5})) == "H100"


def test_where_no_gpu_has_the_stated_memory_the_refusal_names_the_hint() -> None:
    found = plan_for(script({"memory_gib": 90.0}))

    assert isinstance(found, Refusal)
    assert found.reason is Reason.DOES_NOT_FIT
    assert "hints.memory_gib is 90 a rank, 44.4 GiB there (L40S)" in found.detail
    assert "79.1 GiB there (H100)" in found.detail


def test_a_stated_memory_holds_for_a_model_of_the_users_own_too() -> None:
    model = {"kind": "python", "target": "models:make", "hints": {"memory_gib": 62.5}}

    assert place_of(training(workload={"model": model})) == "H100"


def test_weights_that_lie_nowhere_are_refused() -> None:
    found = plan_for(script({"parameters": 405e9}))

    assert isinstance(found, Refusal)
    assert "the weights of 4.05e+11 parameters (hints.parameters) alone take 94.3 GiB a rank in 16 bits" in found.detail
    assert "give hints.memory_gib if the program needs less" in found.detail


def test_a_strategy_that_keeps_the_weights_whole_does_not_share_them() -> None:
    whole = {"kind": "deepspeed", "zero_stage": 2}

    assert place_of(script({"parameters": 30e9})) == "L40S"
    assert place_of(script({"parameters": 30e9}, strategy=whole)) == "H100"


def test_a_program_that_fits_only_with_an_adapter_or_offloading_is_told_so() -> None:
    found = plan_for(script({"parameters": 70e9}))

    assert isinstance(found, Plan)
    (note,) = found.notes
    assert note.startswith(
        "training all of 7e+10 parameters with Adam takes at least 130.4 GiB a rank, split over all 8"
    )


@pytest.mark.parametrize("hints", [{"parameters": 1e9}, {"layers": 4}, {"parameters": 70e9, "memory_gib": 30.0}])
def test_what_fits_or_says_nothing_is_not_noted(hints: dict[str, float]) -> None:
    found = plan_for(script(hints))

    assert isinstance(found, Plan)
    assert found.notes == ()
