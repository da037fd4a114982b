"""Learning rates by step."""

import math

import pytest
from pydantic import TypeAdapter
from shunter_schemas.optimization import Schedule
from shunter_trainer.optim.schedules import Factor, schedule_factor

SCHEDULE: TypeAdapter[Schedule] = TypeAdapter(Schedule)
HALF_COSINE = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 0.25))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"kind": "constant", "warmup_steps": 10}, {1: 0.1, 5: 0.5, 10: 1.0, 11: 1.0, 100: 1.0}),
        ({"kind": "linear", "warmup_steps": 20}, {1: 0.05, 20: 1.0, 60: 0.5, 100: 0.0}),
        ({"kind": "linear", "min_lr_ratio": 0.5}, {50: 0.75, 100: 0.5}),
        ({"kind": "cosine", "warmup_ratio": 0.2, "min_lr_ratio": 0.1}, {10: 0.5, 20: 1.0, 40: HALF_COSINE, 100: 0.1}),
        ({"kind": "cosine"}, {50: 0.5, 100: 0.0}),
        ({"kind": "wsd", "warmup_steps": 10, "decay_ratio": 0.2}, {5: 0.5, 10: 1.0, 80: 1.0, 90: 0.5, 100: 0.0}),
        ({"kind": "wsd", "decay_ratio": 0.5, "min_lr_ratio": 0.1}, {1: 1.0, 50: 1.0, 75: 0.55, 100: 0.1}),
    ],
    ids=lambda value: value.get("kind", "") if isinstance(value, dict) else "",
)
def test_the_learning_rate_follows_the_table(document: dict[str, object], expected: dict[int, float]) -> None:
    factor = made(document, total_steps=100)

    assert {step: factor(step) for step in expected} == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "wsd"])
@pytest.mark.parametrize("total_steps", [1, 2, 7])
@pytest.mark.parametrize("warmup_steps", [1, 7, 50])
def test_a_schedule_holds_for_any_length(kind: str, total_steps: int, warmup_steps: int) -> None:
    factor = made({"kind": kind, "warmup_steps": warmup_steps}, total_steps)

    factors = [factor(step) for step in range(1, total_steps + 3)]

    assert all(0.0 <= value <= 1.0 for value in factors)


def test_the_learning_rate_never_rises_after_the_warm_up() -> None:
    document = {"kind": "cosine", "warmup_steps": 10, "min_lr_ratio": 0.05}
    factor = made(document, total_steps=200)

    factors = [factor(step) for step in range(10, 201)]

    assert factors == sorted(factors, reverse=True)


def test_a_learning_rate_that_never_moves_is_left_to_the_optimizer() -> None:
    assert schedule_factor(SCHEDULE.validate_python({"kind": "constant"}), total_steps=100) is None


def made(document: dict[str, object], total_steps: int) -> Factor:
    factor = schedule_factor(SCHEDULE.validate_python(document), total_steps)
    assert factor is not None
    return factor
