"""The document's limits against a prediction: what is refused before a cent is spent, and what is merely told."""

from __future__ import annotations

from shunter_schemas.job import JobSpec

from shunter_planner.search.quotes import Quote


def beyond_limits(document: JobSpec, made: Quote) -> tuple[str, str] | None:
    """The reason and its words where even the low end of the prediction is beyond a limit."""
    limits, prediction = document.limits, made.prediction
    if prediction is None or prediction.cost_low_usd is None or prediction.duration_low_s is None:
        return None
    if limits.max_cost_usd is not None and prediction.cost_low_usd > limits.max_cost_usd:
        words = f"predicted to cost {_span(prediction.cost_low_usd, prediction.cost_high_usd)} USD"
        return "cost", f"{words}, at most {limits.max_cost_usd:.2f} allowed (limits.max_cost_usd)"
    if limits.max_duration_s is not None and prediction.duration_low_s - prediction.start_up_s > limits.max_duration_s:
        words = f"predicted to take {_span(prediction.duration_low_s, prediction.duration_high_s)} s"
        return "duration", f"{words}, at most {limits.max_duration_s:.0f} allowed (limits.max_duration_s)"
    return None


def limit_notes(document: JobSpec, made: Quote) -> list[str]:
    """What may be reached: the limit lies within the prediction's interval."""
    limits, prediction, notes = document.limits, made.prediction, []
    if prediction is None or prediction.cost_high_usd is None or prediction.duration_high_s is None:
        return []
    cap, high = limits.max_cost_usd, prediction.cost_high_usd
    if cap is not None and high > cap and prediction.steps and prediction.cost_usd:
        share = min(1.0, cap / prediction.cost_usd)
        notes.append(
            f"limits.max_cost_usd {cap:.2f} may be reached at about step {int(prediction.steps * share):,} of "
            f"{prediction.steps:,}; up to {high:.2f} USD finishes it"
        )
    longest_s = limits.max_duration_s
    if longest_s is not None and prediction.duration_high_s > longest_s:
        notes.append(
            f"limits.max_duration_s {longest_s:.0f} may be reached; up to {prediction.duration_high_s:.0f} s finish it"
        )
    return notes


def _span(low: float, high: float | None) -> str:
    return f"{low:.2f} to {high:.2f}" if high is not None else f"{low:.2f}"
