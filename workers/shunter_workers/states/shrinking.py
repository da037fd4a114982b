"""A micro-batch that the plan chose and that ran out of memory: the same nodes begin again with a smaller one.

The trainer tries the plan's size before it trains and takes a smaller one by itself where it can. What is left for here
is memory that runs out where ranks cannot try it alone (a strategy that gathers parameters), or later than in a trial.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shunter_planner import Plan
from shunter_planner.values import as_json
from shunter_schemas.batching import BatchPlan, with_micro_size
from shunter_schemas.states import Reason
from shunter_schemas.training import TrainingWorkload

from shunter_workers.decisions import Settle
from shunter_workers.view import View

_PARTS_TOLD: Final = 4
_LEAST_TOLD_GIB: Final = 0.01


def smaller_plan(view: View) -> Plan | None:
    """At most half of the micro-batch, and as many more of them: every step takes the same samples as before.

    None: memory did not run out, the document names the size itself, or one sample is too much already.
    """
    workload = view.document.workload
    if view.verdict.reason != Reason.OUT_OF_MEMORY or not isinstance(workload, TrainingWorkload):
        return None
    plan = view.plan
    if workload.batch.micro_size != "auto" or plan.accumulation is None or (plan.micro_size or 1) <= 1:
        return None
    assert plan.micro_size is not None, "it is more than one"
    batch = with_micro_size(BatchPlan(plan.micro_size, plan.accumulation, plan.world_size), plan.micro_size // 2)
    return replace(plan, micro_size=batch.micro_size, accumulation=batch.accumulation)


def with_expectation(message: str, view: View) -> str:
    """The message of a rank that ran out of memory, with what the plan had expected of it as the second line."""
    expected = view.plan.prediction
    if view.verdict.reason != Reason.OUT_OF_MEMORY or expected is None or not expected.need_gib:
        return message
    parts = sorted(expected.memory_gib.items(), key=lambda part: -part[1])
    told = ", ".join(
        f"{name.replace('_', ' ')} {gib:.2f}" for name, gib in parts[:_PARTS_TOLD] if gib >= _LEAST_TOLD_GIB
    )
    there = f" of the {expected.available_gib:.2f} GiB there" if expected.available_gib else ""
    size = f" with {expected.micro_size} samples at once" if expected.micro_size else ""
    line = f"the plan had expected {expected.need_gib:.2f} GiB a rank{there}{size}" + (f": {told}" if told else "")
    headline, _, rest = message.partition("\n")
    return "\n".join(part for part in (headline, line, rest) if part)


def shrunk(recovery: Settle, view: View, smaller: Plan) -> Settle:
    """The recovery under the smaller plan; no later plan of the job tries more."""
    before = view.plan
    told = {
        "micro_size": smaller.micro_size,
        "accumulation": smaller.accumulation,
        "before": before.micro_size,
        "message": f"{before.micro_size} samples at once ran out of memory; "
        f"going on with {smaller.micro_size} at once, {smaller.accumulation} times a step",
    }
    change = recovery.change
    set_ = {**change.set, "plan": as_json(smaller)}
    events = [("job.micro_batch", told), *change.events]
    memory = {**(recovery.memory or view.memory.as_json()), "most_micro_size": smaller.micro_size}
    return replace(recovery, change=replace(change, set=set_, events=events), memory=memory)
