"""What a plan predicts: memory by part, time, cost, each with an interval. Plain numbers, stored with the attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from shunter_planner.costs import Costs, Run
from shunter_planner.hardware.gpus import Gpu
from shunter_planner.memory.estimate import GIB
from shunter_planner.search.sizing import Option

WITHIN: Final = 1.25
"""Nine of ten published runs on GPUs of the table lie within a factor of this (`benchmarks/planner`)."""
WITHIN_UNKNOWN: Final = 2.0
"""For a GPU that is not in the table, a model known by hints alone, or nodes joined nobody knows how."""
WITHIN_CPU: Final = 4.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """None where the document leaves open what it depends on: without a number of steps there is no duration."""

    micro_size: int | None = None
    """The micro-batch that memory was predicted for."""
    memory_gib: Mapping[str, float] = field(default_factory=dict)
    """Peak of one rank by part."""
    need_gib: float = 0.0
    available_gib: float = 0.0
    """0: not known."""
    host_gib: float = 0.0
    """Main memory that offloading takes, for each rank."""
    step_s: float = 0.0
    step_parts_s: Mapping[str, float] = field(default_factory=dict)
    tokens_per_s: float = 0.0
    mfu: float | None = None
    factor: float = WITHIN
    """Times are expected between the prediction divided and multiplied by this."""
    steps: int | None = None
    start_up_s: float = 0.0
    duration_s: float | None = None
    duration_low_s: float | None = None
    duration_high_s: float | None = None
    cost_usd: float | None = None
    cost_low_usd: float | None = None
    cost_high_usd: float | None = None
    cost_parts_usd: Mapping[str, float] = field(default_factory=dict)
    usd_per_million_tokens: float | None = None
    speed_correction: float = 1.0
    """By past runs: `tokens_per_s` is the prior multiplied by this."""
    memory_correction: float = 1.0
    """Likewise of what the allocator holds."""
    corrected_from_runs: int = 0


def factor_of(gpu: Gpu | None, *, is_sure: bool) -> float:
    """How far a prediction of time may be wrong."""
    if gpu is None:
        return WITHIN_CPU
    return WITHIN if gpu.known and is_sure else WITHIN_UNKNOWN


def prediction_of(option: Option, gpu: Gpu | None, *, factor: float) -> Prediction:
    """What is known without a price and a number of steps."""
    time, memory = option.time, option.memory
    parts = {
        "products": time.products,
        "attention": time.attention,
        "memory_bound": time.memory_bound,
        "waiting_for_host": time.waiting_for_host,
        "messages": time.exposed_messages,
        "optimizer": time.optimizer,
    }
    return Prediction(
        micro_size=option.cut.micro_size,
        memory_gib=memory.parts_gib(),
        need_gib=round(option.need_gib, 3),
        available_gib=round(option.available_gib, 3),
        host_gib=round(memory.host / GIB, 3),
        step_s=time.total,
        step_parts_s=parts,
        tokens_per_s=time.tokens_per_s,
        mfu=None if gpu is None else time.mfu(gpu, option.spread.world),
        factor=factor,
        speed_correction=option.correction.speed,
        memory_correction=option.correction.memory,
        corrected_from_runs=option.correction.runs,
    )


def with_run(known: Prediction, steps: int, run: Run, costs: Costs, tokens: float) -> Prediction:
    """The same with duration and money."""
    moving = costs.total - costs.setup
    varies = {"training": costs.training, "start_up": costs.start_up, "repeated": costs.repeated}
    return replace(
        known,
        steps=steps,
        start_up_s=run.start_up_s,
        duration_s=run.total_s,
        duration_low_s=run.start_up_s + (run.total_s - run.start_up_s) / known.factor,
        duration_high_s=run.start_up_s + (run.total_s - run.start_up_s) * known.factor,
        cost_usd=costs.total,
        cost_low_usd=costs.setup + moving / known.factor,
        cost_high_usd=costs.setup + moving * known.factor,
        cost_parts_usd={**varies, "disk": costs.disk, "setup": costs.setup},
        usd_per_million_tokens=costs.total / tokens * 1e6 if tokens else None,
    )


def prediction_from_json(stored: Mapping[str, Any]) -> Prediction:
    """One that was stored; fields that a newer version added are skipped."""
    names = {entry.name for entry in fields(Prediction)}
    return Prediction(**{name: value for name, value in stored.items() if name in names})
