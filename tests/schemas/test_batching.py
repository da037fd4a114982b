"""Batch arithmetic: what is derived multiplies back to what was asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shunter_schemas.batching import BatchPlan, batch_plan, total_steps
from shunter_schemas.job import load_job
from shunter_schemas.training import TrainingWorkload
from support.documents import changed, tiny_lm


def training(changes: dict[str, Any]) -> TrainingWorkload:
    workload = load_job(changed(tiny_lm(), changes)).workload
    assert isinstance(workload, TrainingWorkload)
    return workload


@pytest.mark.parametrize(
    ("batch", "world_size", "plan"),
    [
        ({"global_size": 16}, 2, BatchPlan(8, 1, 2)),
        ({"global_size": 16, "micro_size": 2}, 2, BatchPlan(2, 4, 2)),
        ({"global_size": 16, "micro_size": 16}, 1, BatchPlan(16, 1, 1)),
    ],
)
def test_accumulation_follows_from_the_sizes(batch: dict[str, Any], world_size: int, plan: BatchPlan) -> None:
    assert batch_plan(training({"workload.batch": batch}), world_size) == plan


@pytest.mark.parametrize(
    ("batch", "world_size"),
    [({"global_size": 16}, 3), ({"global_size": 1}, 2), ({"global_size": 16, "micro_size": 3}, 2)],
)
def test_sizes_that_do_not_divide_have_no_plan(batch: dict[str, Any], world_size: int) -> None:
    with pytest.raises(ValueError, match="does not divide"):
        batch_plan(training({"workload.batch": batch}), world_size)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
def test_a_plan_multiplies_back_to_the_global_size(micro: int, accumulation: int, world_size: int) -> None:
    size = micro * accumulation * world_size

    plan = batch_plan(training({"workload.batch": {"global_size": size, "micro_size": micro}}), world_size)

    assert plan == (micro, accumulation, world_size)


@pytest.mark.parametrize(
    ("duration", "samples", "steps"),
    [
        ({"steps": 300}, None, 300),
        ({"tokens": 16 * 128 * 10}, None, 10),
        ({"tokens": 16 * 128 * 10 + 1}, None, 11),
        ({"epochs": 2}, 160, 20),
        ({"epochs": 0.5}, 161, 6),
        ({"epochs": 0.001}, 160, 1),
        ({"epochs": 0.1}, 16 * 30, 3),
        ({"epochs": 2}, None, None),
    ],
)
def test_the_number_of_steps_follows_from_the_duration(
    duration: dict[str, Any], samples: int | None, steps: int | None
) -> None:
    assert total_steps(training({"workload.duration": duration}), samples) == steps
