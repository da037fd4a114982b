"""What lies ahead of a running job, and when its verdict changes. Pure."""

from __future__ import annotations

import pytest
from shunter_planner.forecasts import Ahead, Pace, cap_comes_first, look_ahead


def ahead(cap_usd: float | None, *, step: int = 4000, spent_usd: float = 100.0) -> Ahead:
    """100 USD are spent at 25 USD an hour, and 6 hours are to go."""
    return look_ahead(Pace(step, 10_000, 21_600.0), spent_usd=spent_usd, usd_per_hour=25.0, cap_usd=cap_usd)


def test_the_cap_has_to_pay_for_the_orderly_stop_too() -> None:
    found = ahead(209.0)

    assert found.usd == pytest.approx(250.0)
    assert found.usd_above_cap == pytest.approx(41.0 + 25 / 60)
    assert found.cap_at_step == 4000 + int((109.0 - 25 / 60) / 150.0 * 6000)


def test_a_cap_that_was_raised_by_what_was_told_is_enough() -> None:
    short = ahead(209.0)
    assert short.usd_above_cap is not None

    enough = ahead(209.0 + short.usd_above_cap + 0.01)

    assert (enough.cap_at_step, enough.usd_above_cap) == (None, None)


def test_a_cap_that_is_spent_already_ends_at_the_present_step() -> None:
    assert ahead(90.0).cap_at_step == 4000


@pytest.mark.parametrize(
    ("cap_usd", "before", "after"),
    [
        (None, False, False),
        (None, True, False),
        (260.0, True, False),
        (249.0, False, False),  # needs 0.6 % more: not clear
        (249.0, True, True),
        (209.0, False, True),
    ],
)
def test_a_verdict_changes_only_where_it_is_clear(cap_usd: float | None, before: bool, after: bool) -> None:
    assert cap_comes_first(ahead(cap_usd), spent_usd=100.0, before=before) is after


def test_the_pace_of_the_first_steps_is_not_believed_unless_half_is_spent() -> None:
    early = ahead(209.0, step=3)

    assert not cap_comes_first(early, spent_usd=100.0, before=False)
    assert cap_comes_first(early, spent_usd=105.0, before=False)
