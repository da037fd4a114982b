"""What a running job will have cost, and whether its cap comes first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from shunter_schemas.api import Forecast
from shunter_schemas.states import State
from shunter_service.showing.forecasts import forecast


def standing(**changes: Any) -> Any:
    """A job that has done 4,000 of 10,000 steps for 100 USD, with 6 hours to go."""
    facts = {"state": State.RUNNING, "cap": None, "step": 4000, "total_steps": 10_000, "eta_s": 21_600.0, **changes}
    row = SimpleNamespace(state=facts["state"], generation=2, spec={"limits": {"max_cost_usd": facts["cap"]}})
    newest = SimpleNamespace(
        generation=facts.get("generation", 2),
        step=facts["step"],
        total_steps=facts["total_steps"],
        eta_s=facts["eta_s"],
    )
    return SimpleNamespace(row=row, progress=[newest], cost_usd=100.0)


def test_a_job_without_a_cap_is_told_what_it_will_cost() -> None:
    assert forecast(standing(), 25.0) == Forecast(usd=250.0, total_steps=10_000)


def test_a_cap_that_comes_first_is_told_with_its_step_and_what_more_finishes() -> None:
    """The stop takes a minute, which the cap has to pay for too."""
    found = forecast(standing(cap=209.0), 24.0)

    assert found == Forecast(usd=244.0, total_steps=10_000, cap_at_step=8525, usd_above_cap=35.4)


def test_a_cap_that_is_never_reached_is_not_told() -> None:
    found = forecast(standing(cap=260.0), 25.0)

    assert found is not None
    assert (found.cap_at_step, found.usd_above_cap) == (None, None)


def test_a_cap_that_is_passed_already_ends_at_the_present_step() -> None:
    found = forecast(standing(cap=90.0), 25.0)

    assert found is not None
    assert found.cap_at_step == 4000


@pytest.mark.parametrize(
    "changes",
    [{"state": State.STARTING}, {"total_steps": None}, {"eta_s": None}, {"step": 10_000}, {"generation": 1}],
)
def test_nothing_is_told_where_the_pace_is_not_known(changes: dict[str, Any]) -> None:
    assert forecast(standing(**changes), 25.0) is None


def test_nothing_is_told_of_a_job_that_bills_nothing() -> None:
    assert forecast(standing(), 0.0) is None
