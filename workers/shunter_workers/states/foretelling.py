"""Says in the job's history that its cap will be reached before its end, and that it will not any more: once a change.

Nobody looks at a running job by itself: `duties.forecaster` wakes those of which something is to be told.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from shunter_planner.forecasts import Ahead, Pace, cap_comes_first, look_ahead
from shunter_schemas.states import NodeState
from shunter_store.job.steps import Change

from shunter_workers.decisions import Settle
from shunter_workers.view import View


def foretell(view: View, now: datetime) -> Settle | None:
    """One event where the verdict is another than the last that was told; None: there is nothing to say."""
    ahead = _ahead(view)
    before = view.memory.cap_ahead
    if ahead is None or cap_comes_first(ahead, spent_usd=view.cost_usd, before=before) == before:
        return None
    told = ("job.cap_forecast", _words(view, ahead, comes_first=not before))
    return Settle(Change(next_in_s=0.0, events=[told]), memory=view.memory.but(cap_ahead=not before))


def _ahead(view: View) -> Ahead | None:
    newest, rate = view.progress, _usd_per_hour(view)
    if newest is None or newest.generation < view.job.generation or rate <= 0:
        return None
    if newest.eta_s is None or not newest.total_steps or newest.total_steps <= newest.step:
        return None
    cap_usd = view.document.limits.max_cost_usd
    pace = Pace(newest.step, newest.total_steps, newest.eta_s)
    return look_ahead(pace, spent_usd=view.cost_usd, usd_per_hour=rate, cap_usd=cap_usd)


def _usd_per_hour(view: View) -> float:
    return sum(node.billed_usd_per_hour for node in view.nodes if node.handle and node.state is not NodeState.GONE)


def _words(view: View, ahead: Ahead, *, comes_first: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "cap_comes_first": comes_first,
        "step": ahead.step,
        "total_steps": ahead.total_steps,
        "forecast_usd": round(ahead.usd, 2),
        "max_cost_usd": ahead.cap_usd,
    }
    if not comes_first:
        cap = "there is no limits.max_cost_usd any more" if ahead.cap_usd is None else _suffices(ahead)
        return {**data, "message": cap}
    assert ahead.usd_above_cap is not None, "the cap comes first"
    more_usd = round(ahead.usd_above_cap + 0.005, 2)
    message = (
        f"limits.max_cost_usd {ahead.cap_usd:.2f} will be reached at about step {ahead.cap_at_step:,} of "
        f"{ahead.total_steps:,}; {more_usd:.2f} USD more finishes: "
        f"PATCH /v1/jobs/{view.job.id} with limits.max_cost_usd {ahead.needed_usd + 0.005:.2f} or more"
    )
    return {**data, "cap_at_step": ahead.cap_at_step, "usd_above_cap": more_usd, "message": message}


def _suffices(ahead: Ahead) -> str:
    return f"limits.max_cost_usd {ahead.cap_usd:.2f} suffices now: {ahead.usd:.2f} USD in all are expected"
