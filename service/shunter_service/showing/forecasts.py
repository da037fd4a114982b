"""What a running job will have cost when it is done, and whether its cap comes first, as the API shows it. Pure."""

from __future__ import annotations

from shunter_planner.forecasts import Pace, look_ahead
from shunter_schemas.api import Forecast
from shunter_schemas.states import State
from shunter_store.job.standings import Standing


def forecast(standing: Standing, usd_per_hour: float) -> Forecast | None:
    """By the pace of the newest report and what bills now; None where one of them is not known, or nothing bills."""
    row, newest = standing.row, standing.progress[-1] if standing.progress else None
    if row.state is not State.RUNNING or newest is None or usd_per_hour <= 0 or not newest.total_steps:
        return None
    if newest.generation < row.generation or newest.eta_s is None or newest.total_steps <= newest.step:
        return None
    found = look_ahead(
        Pace(newest.step, newest.total_steps, newest.eta_s),
        spent_usd=standing.cost_usd,
        usd_per_hour=usd_per_hour,
        cap_usd=(row.spec.get("limits") or {}).get("max_cost_usd"),
    )
    return Forecast(
        usd=round(found.usd, 6),
        total_steps=found.total_steps,
        cap_at_step=found.cap_at_step,
        usd_above_cap=None if found.usd_above_cap is None else round(found.usd_above_cap, 6),
    )
