"""The document's limits against a prediction: what is refused before a cent is spent, and what is merely told.

A limit is enforced while the job runs in any case, so a refusal has to be sure: it takes that even the low end of the
prediction, for what is left to do and with what was spent already, lies beyond the limit, and that the prediction rests
on more than a guess. The speed of CPUs is a guess; there a limit that is likely to be reached is a note of the plan.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from shunter_schemas.job import JobSpec

from shunter_planner.predictions import WITHIN_UNKNOWN, Prediction
from shunter_planner.search.quotes import Quote
from shunter_planner.values import Facts

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86_400.0
_FEWER_STEPS: Final = "or ask for fewer steps (workload.duration)"


class Beyond(NamedTuple):
    """Why a limit rules a way out."""

    reason: str
    """`cost` or `duration`."""
    detail: str
    needed: float
    """The limit with which it would go, whatever of the interval comes true."""


def beyond_limits(document: JobSpec, made: Quote, facts: Facts) -> Beyond | None:
    """Why even the low end of a prediction is beyond a limit; None: it is not, or the prediction is a guess."""
    limits, prediction = document.limits, made.prediction
    if prediction is None or prediction.cost_low_usd is None or prediction.factor > WITHIN_UNKNOWN:
        return None
    left = _share_left(prediction, facts)
    cost = _cost_usd(prediction).scaled(left, facts.spent_usd)
    if limits.max_cost_usd is not None and cost.low > limits.max_cost_usd:
        words = f"predicted to cost {_usd(cost)}, at most {limits.max_cost_usd:.2f} allowed (limits.max_cost_usd)"
        return Beyond("cost", words, cost.high)
    time = _training_s(prediction).scaled(left, facts.ran_s)
    if limits.max_duration_s is not None and time.low > limits.max_duration_s:
        allowed = human_s(limits.max_duration_s)
        words = f"predicted to train for {_range_s(time)}, at most {allowed} allowed (limits.max_duration_s)"
        return Beyond("duration", words, time.high)
    return None


def way_out(beyond: list[Beyond], reason: str) -> str:
    """What to change so that a job goes which every offer would take beyond this limit: by the one that needs least."""
    needed = min((one.needed for one in beyond if one.reason == reason), default=None)
    if needed is None:
        return ""
    if reason == "cost":
        return f"; raise limits.max_cost_usd to {_rounded_up(needed):g}, {_FEWER_STEPS}"
    return f"; raise limits.max_duration_s to {_rounded_up(needed):.0f}, {_FEWER_STEPS}, or more GPUs (resources.gpus)"


def limit_notes(document: JobSpec, made: Quote, facts: Facts) -> list[str]:
    """What may be reached: the limit lies within the prediction's interval, or below that of a guess."""
    limits, prediction, notes = document.limits, made.prediction, []
    if prediction is None or prediction.cost_high_usd is None:
        return []
    left = _share_left(prediction, facts)
    cap, high = limits.max_cost_usd, facts.spent_usd + prediction.cost_high_usd * left
    if cap is not None and high > cap and prediction.steps and prediction.cost_usd:
        share = min(1.0, max(0.0, cap - facts.spent_usd) / (prediction.cost_usd * left or 1.0))
        step = round(prediction.steps * (1 - left + left * share))
        notes.append(
            f"limits.max_cost_usd {cap:.2f} may be reached at about step {step:,} of {prediction.steps:,}; "
            f"up to {high:.2f} USD finishes it"
        )
    longest_s, time = limits.max_duration_s, _training_s(prediction).scaled(left, facts.ran_s)
    if longest_s is not None and time.high > longest_s:
        likely = "is likely to" if time.low > longest_s else "may"
        notes.append(
            f"limits.max_duration_s ({human_s(longest_s)}) {likely} be reached before the end: "
            f"the training is predicted to take {_range_s(time)}"
        )
    return notes


def human_s(seconds: float) -> str:
    """A duration for people, to two significant digits: `45 s`, `12 min`, `2.5 h`, `3.2 days`."""
    for unit_s, name in ((1.0, "s"), (_MINUTE_S, "min"), (_HOUR_S, "h")):
        shown = _two_digits(seconds / unit_s)
        if shown < {"s": 90, "min": 90, "h": 48}[name]:
            return f"{shown:g} {name}"
    return f"{_two_digits(seconds / _DAY_S):,g} days"


class _Span(NamedTuple):
    low: float
    high: float

    def scaled(self, share: float, begun: float) -> _Span:
        """For a share of the whole, behind what has been."""
        return _Span(begun + self.low * share, begun + self.high * share)


def _share_left(prediction: Prediction, facts: Facts) -> float:
    """Of the training: a job that goes on from a checkpoint has done the rest."""
    if not prediction.steps:
        return 1.0
    return max(0.0, 1.0 - facts.steps_done / prediction.steps)


def _cost_usd(prediction: Prediction) -> _Span:
    assert prediction.cost_low_usd is not None, "the run is known"
    assert prediction.cost_high_usd is not None, "the run is known"
    return _Span(prediction.cost_low_usd, prediction.cost_high_usd)


def _training_s(prediction: Prediction) -> _Span:
    """Without the start-up, from whose end on the limit counts."""
    low, high = prediction.duration_low_s, prediction.duration_high_s
    assert low is not None, "a run with a cost has a duration"
    assert high is not None, "a run with a cost has a duration"
    return _Span(low - prediction.start_up_s, high - prediction.start_up_s)


def _usd(span: _Span) -> str:
    return f"{span.low:.2f} to {span.high:.2f} USD"


def _range_s(span: _Span) -> str:
    low, high = human_s(span.low), human_s(span.high)
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def _rounded_up(value: float) -> float:
    """To two significant digits, never below the value."""
    if value <= 0:
        return 0.0
    grain: float = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / grain) * grain:.6g}")
