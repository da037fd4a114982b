"""What past runs say of the priors: taken together by kind, bounded, and told in the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shunter_planner import Facts, History, Plan, plan
from shunter_planner.corrections import Correction, Kind, Pair, corrections_of, kind_of, pair_of, strategy_name
from shunter_planner.recipe import Spread
from shunter_planner.values import as_json
from support.plans import H100, training

KIND = Kind("H100", "fsdp", "huggingface")


def planned(history: History, **parts: Any) -> Plan:
    answer = plan(training(**parts), [H100], Facts(instances=("alpha",)), history)
    assert isinstance(answer, Plan)
    return answer


@pytest.mark.parametrize(
    ("ratios", "speed"),
    [
        ([2.0, 2.0], 1.0),  # two say nothing
        ([1.2, 1.2, 1.2], pytest.approx(1.2**0.5, abs=1e-3)),  # three are drawn half way to 1
        ([1.2] * 97, pytest.approx(1.2**0.97, abs=1e-3)),
        ([9.0] * 97, 1.5),
        ([0.1] * 97, pytest.approx(1 / 1.5, abs=1e-3)),
        ([1.1, 1.1, 1.1, 50.0], pytest.approx(1.1 ** (4 / 7), abs=1e-3)),  # one that is off moves nothing
    ],
)
def test_a_correction_is_a_median_drawn_towards_the_prior_and_bounded(ratios: list[float], speed: float) -> None:
    found = corrections_of(Pair(KIND, speed=ratio) for ratio in ratios)

    assert found.get(KIND, Correction()).speed == speed


def test_memory_is_hardly_corrected_downwards() -> None:
    found = corrections_of(Pair(KIND, memory=0.5) for _ in range(50))

    assert found[KIND].memory == 0.95


def test_kinds_are_corrected_apart() -> None:
    other = KIND._replace(strategy="ddp")

    found = corrections_of([*(Pair(KIND, speed=1.3) for _ in range(5)), *(Pair(other, speed=0.8) for _ in range(5))])

    assert found[KIND].speed > 1.0 > found[other].speed


def test_a_corrected_plan_says_so_and_is_that_much_quicker() -> None:
    prior = planned(History())
    corrected = planned(History({KIND: Correction(12, speed=1.08)}))

    assert prior.prediction is not None
    assert corrected.prediction is not None
    assert corrected.prediction.tokens_per_s == pytest.approx(1.08 * prior.prediction.tokens_per_s)
    assert "corrected by speed \u00d71.08 from 12 runs of fsdp on H100" in corrected.notes
    assert not any("corrected" in note for note in prior.notes)


def test_corrected_memory_decides_what_fits() -> None:
    long = {"data": {"kind": "sample", "name": "python-docs", "tokenizer": "bytes", "sequence_length": 6144}}
    prior = planned(History(), workload=long)
    corrected = planned(History({KIND: Correction(9, memory=1.25)}), workload=long)

    assert (prior.activation_checkpointing, corrected.activation_checkpointing) == ("none", "selective")


def measured(answer: Plan, **values: float) -> Pair | None:
    """What the store reads of a run of this plan."""
    assert answer.prediction is not None
    stored: dict[str, Any] = {
        "strategy": answer.strategy,
        "prediction": as_json(answer)["prediction"],
        "slot_kind": "gpu",
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "gpu_memory_gib": 80.0,
        "micro_size": answer.micro_size,
    }
    return pair_of(stored, "huggingface", 100, values)


def test_a_run_is_compared_with_the_prior_also_where_its_plan_was_corrected() -> None:
    prior = planned(History())
    corrected = planned(History({KIND: Correction(12, speed=1.08)}))
    assert prior.prediction is not None
    speed = 0.9 * prior.prediction.tokens_per_s

    pairs = [measured(answer, tokens_per_s=speed) for answer in (prior, corrected)]

    assert [pair.speed for pair in pairs if pair is not None] == pytest.approx([0.9, 0.9])
    assert [pair.kind for pair in pairs if pair is not None] == [KIND, KIND]


def test_a_micro_batch_that_was_made_smaller_says_that_the_planned_one_needs_more_than_there_is() -> None:
    answer = planned(History())
    assert answer.prediction is not None
    assert answer.micro_size is not None

    same = measured(answer, peak_memory_gib=60.0)
    smaller = measured(answer, peak_memory_gib=30.0, micro_size=answer.micro_size / 2)
    larger = measured(answer, peak_memory_gib=60.0, micro_size=1000.0)

    assert same is not None
    assert same.memory is not None
    assert smaller is not None
    assert smaller.memory == pytest.approx(answer.prediction.available_gib / answer.prediction.need_gib)
    assert larger is None


@pytest.mark.parametrize("values", [{}, {"tokens_per_s": 0.0}, {"tokens_per_s": float("inf")}, {"tokens_per_s": "x"}])
def test_values_that_say_nothing_are_no_pair(values: dict[str, Any]) -> None:
    assert measured(planned(History()), **values) is None


def test_short_runs_and_plans_without_a_prediction_are_no_pair() -> None:
    stored = {"strategy": {"kind": "ddp"}, "prediction": {"tokens_per_s": 5.0}}

    assert pair_of(stored, "transformer", 19, {"tokens_per_s": 5.0}) is None
    assert pair_of({**stored, "prediction": None}, "transformer", 100, {"tokens_per_s": 5.0}) is None
    assert pair_of(stored, "transformer", 20, {"tokens_per_s": 5.0}) == Pair(Kind("CPU", "ddp", "transformer"), 1.0)


@pytest.mark.parametrize(
    ("spread", "strategy"),
    [
        (Spread("ddp", 8, 8), {"kind": "ddp"}),
        (Spread("fsdp", 8, 8, offload_parameters=True), {"kind": "fsdp", "offload": "cpu"}),
        (Spread("deepspeed", 8, 8, zero_stage=2), {"kind": "deepspeed", "zero_stage": 2}),
        (
            Spread("deepspeed", 8, 8, zero_stage=3, offload_optimizer=True),
            {"kind": "deepspeed", "zero_stage": 3, "offload_optimizer": "cpu"},
        ),
    ],
)
def test_a_stored_strategy_has_the_name_that_the_search_gives_it(spread: Spread, strategy: dict[str, Any]) -> None:
    assert strategy_name(strategy) == spread.name


def test_every_name_of_a_gpu_is_one_kind() -> None:
    assert kind_of("NVIDIA H100 80GB HBM3", 80.0, "fsdp", "x").gpu == kind_of("H100", 80.0, "fsdp", "x").gpu == "H100"
    assert kind_of(None, 0.0, "ddp", "x").gpu == "CPU"
    assert replace(Correction(3), speed=1.0).words == ""
