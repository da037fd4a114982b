"""What a running job will have cost when it is done, and whether its cap comes first. Pure: no clock, no I/O.

The money's end is that of an orderly stop: a job is told to stop while so much is left as its last checkpoint and its
release will cost (`STOP_TAKES_S`), so a cap that is to be enough has to hold that too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STOP_TAKES_S: Final = 60.0
"""Grace, last checkpoint and release: billed too, so a budget ends this much earlier."""
CLEARLY: Final = 1.01
"""A cap comes first only where more than this share of it is needed: a pace that wavers changes no verdict."""
FIRST_STEPS: Final = 10
"""The pace of fewer says little: kernels are compiled, files are read for the first time. Unless half is spent."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What lies ahead of a job. `cap_at_step` and `usd_above_cap` are None where the cap is never reached."""

    usd: float
    """In all, once it is done."""
    step: int
    total_steps: int
    cap_usd: float | None = None
    cap_at_step: int | None = None
    usd_above_cap: float | None = None
    """So much more, and it finishes."""

    @property
    def needed_usd(self) -> float:
        """The least cap with which it finishes."""
        return (self.cap_usd or 0.0) + (self.usd_above_cap or 0.0)


@dataclass(frozen=True, slots=True)
class Pace:
    """The newest report of a training."""

    step: int
    total_steps: int
    eta_s: float


def look_ahead(pace: Pace, *, spent_usd: float, usd_per_hour: float, cap_usd: float | None) -> Ahead:
    """By the pace of the newest report and what bills now."""
    more_usd, reserve_usd = usd_per_hour * pace.eta_s / 3600, usd_per_hour * STOP_TAKES_S / 3600
    total_usd = spent_usd + more_usd
    if cap_usd is None or total_usd + reserve_usd <= cap_usd:
        return Ahead(total_usd, pace.step, pace.total_steps, cap_usd)
    share = max(0.0, cap_usd - reserve_usd - spent_usd) / more_usd if more_usd > 0 else 0.0
    reached = pace.step + int(min(1.0, share) * (pace.total_steps - pace.step))
    return Ahead(total_usd, pace.step, pace.total_steps, cap_usd, reached, total_usd + reserve_usd - cap_usd)


def cap_comes_first(ahead: Ahead, *, spent_usd: float, before: bool) -> bool:
    """The verdict, which stays what it was `before` as long as neither the one nor the other is clear."""
    if ahead.cap_usd is None or ahead.usd_above_cap is None:
        return False
    if before:
        return True
    told_enough = ahead.step >= FIRST_STEPS or spent_usd > ahead.cap_usd / 2
    return told_enough and ahead.needed_usd > CLEARLY * ahead.cap_usd
