"""What a running job will have cost when it is done, and whether its cap comes first. Pure: no I/O, no clock."""

from __future__ import annotations

from shunter_schemas.api import Forecast
from shunter_schemas.states import State
from shunter_store.standings import Standing


def forecast(standing: Standing, usd_per_hour: float) -> Forecast | None:
    """By the pace of the newest report and what bills now; None where one of them is not known, or nothing bills."""
    row, newest = standing.row, standing.progress[-1] if standing.progress else None
    if row.state is not State.RUNNING or newest is None or usd_per_hour <= 0 or not newest.total_steps:
        return None
    left = newest.total_steps - newest.step
    if newest.generation < row.generation or newest.eta_s is None or left <= 0:
        return None
    more_usd = usd_per_hour * newest.eta_s / 3600
    total_usd = standing.cost_usd + more_usd
    cap_usd = (row.spec.get("limits") or {}).get("max_cost_usd")
    if cap_usd is None or total_usd <= cap_usd:
        return Forecast(usd=round(total_usd, 6), total_steps=newest.total_steps)
    share = max(0.0, cap_usd - standing.cost_usd) / more_usd
    return Forecast(
        usd=round(total_usd, 6),
        total_steps=newest.total_steps,
        cap_at_step=newest.step + int(share * left),
        usd_above_cap=round(total_usd - cap_usd, 6),
    )
