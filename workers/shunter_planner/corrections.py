"""What past runs say of the priors: by how much predictions of their kind were off, and a bounded correction by that.

Runs are alike that have the same kind of GPU, strategy and model. Their ratios of measured to predicted are taken
together by the median, drawn towards 1 while there are few of them, and bounded: a correction trims priors, it never
replaces them. Pure; the pairs themselves are read by the store (`shunter_store.report.pairs`).
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from shunter_planner.hardware.gpus import gpu_of
from shunter_planner.memory.estimate import Memory
from shunter_planner.timing.estimate import StepTime

LEAST_RUNS: Final = 3
"""Fewer say nothing."""
LEAST_STEPS: Final = 20
"""A run that is shorter was measured while it warmed up."""
DRAWN_BY: Final = 3
"""So many runs that were predicted exactly are added to those that there are."""
SPEED_BOUNDS: Final = (1 / 1.5, 1.5)
MEMORY_BOUNDS: Final = (0.95, 1.25)
"""Hardly downwards: a prediction that is too low ends a run, one that is too high a choice."""
_CPU: Final = "CPU"


class Kind(NamedTuple):
    """Runs of a kind are corrected together."""

    gpu: str
    strategy: str
    model: str


class Pair(NamedTuple):
    """Measured over predicted, of one run; None: not measured."""

    kind: Kind
    speed: float | None = None
    """Of tokens a second."""
    memory: float | None = None
    """Of what tensors take on a GPU at the peak."""


@dataclass(frozen=True, slots=True)
class Correction:
    """By what predictions of a kind are multiplied."""

    runs: int = 0
    speed: float = 1.0
    memory: float = 1.0

    @property
    def words(self) -> str:
        """For the notes of a plan."""
        parts = [f"{what} \u00d7{by:.2f}" for what, by in (("speed", self.speed), ("memory", self.memory)) if by != 1.0]
        return f"corrected by {' and '.join(parts)} from {self.runs} runs" if parts else ""


NONE: Final = Correction()


def corrections_of(pairs: Iterable[Pair]) -> dict[Kind, Correction]:
    """By kind, of those with enough runs."""
    by_kind: dict[Kind, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_kind[pair.kind].append(pair)
    found = {}
    for kind, alike in by_kind.items():
        speed = _factor([one.speed for one in alike if one.speed is not None], SPEED_BOUNDS)
        memory = _factor([one.memory for one in alike if one.memory is not None], MEMORY_BOUNDS)
        if (speed, memory) != (1.0, 1.0):
            found[kind] = Correction(len(alike), speed, memory)
    return found


def kind_of(gpu_model: str | None, gpu_memory_gib: float, strategy: str, model: str) -> Kind:
    """`gpu_model` by any of its names; None: CPUs."""
    return Kind(_CPU if gpu_model is None else gpu_of(gpu_model, gpu_memory_gib).name, strategy, model)


def pair_of(plan: Mapping[str, Any], model: str, steps: int, values: Mapping[str, Any]) -> Pair | None:
    """The pair of a run that ended, or None where nothing of it can be compared.

    Args:
        plan: `strategy`, `prediction`, `slot_kind`, `gpu_model`, `gpu_memory_gib`, `micro_size` as the plan was stored.
        values: the newest value of each metric.
    """
    predicted = plan.get("prediction")
    if not isinstance(predicted, Mapping) or steps < LEAST_STEPS:
        return None
    on_gpu = plan.get("slot_kind") == "gpu"
    gpu = str(plan.get("gpu_model") or "unknown") if on_gpu else None
    kind = kind_of(gpu, float(plan.get("gpu_memory_gib") or 0.0), strategy_name(plan.get("strategy") or {}), model)
    speed = _ratio(values.get("tokens_per_s"), predicted.get("tokens_per_s"), predicted.get("speed_correction"))
    memory = _memory_ratio(predicted, values.get("micro_size") or plan.get("micro_size"), values) if on_gpu else None
    return None if speed is None and memory is None else Pair(kind, speed, memory)


def strategy_name(strategy: Mapping[str, Any]) -> str:
    """Of a document's strategy, as `Spread.name` has it."""
    kind = str(strategy.get("kind", ""))
    if kind != "deepspeed":
        return f"{kind} + offload" if strategy.get("offload") == "cpu" else kind
    name = f"zero-{strategy.get('zero_stage')}"
    return f"{name} + offload" if strategy.get("offload_optimizer") == "cpu" else name


def corrected_memory(memory: Memory, correction: Correction) -> Memory:
    """What the allocator holds, more or less by the correction; told as fragmentation, which is a prior anyway."""
    more = (correction.memory - 1.0) * memory.reserved
    return memory if more == 0.0 else replace(memory, fragmentation=memory.fragmentation + more)


def corrected_time(time: StepTime, correction: Correction) -> StepTime:
    """Every part of a step, quicker or slower by the correction."""
    by = 1.0 / correction.speed
    if by == 1.0:
        return time
    return replace(
        time,
        products=time.products * by,
        attention=time.attention * by,
        memory_bound=time.memory_bound * by,
        waiting_for_host=time.waiting_for_host * by,
        exposed_messages=time.exposed_messages * by,
        optimizer=time.optimizer * by,
    )


def _factor(ratios: list[float], bounds: tuple[float, float]) -> float:
    if len(ratios) < LEAST_RUNS:
        return 1.0
    median = statistics.median(math.log(ratio) for ratio in ratios)
    drawn = math.exp(median * len(ratios) / (len(ratios) + DRAWN_BY))
    return round(min(max(drawn, bounds[0]), bounds[1]), 4)


def _ratio(measured: Any, predicted: Any, correction: Any) -> float | None:
    if not _is_positive(measured) or not _is_positive(predicted):
        return None
    prior = predicted / (correction if _is_positive(correction) else 1.0)
    ratio: float = measured / prior
    return ratio


def _memory_ratio(predicted: Mapping[str, Any], micro_size: Any, values: Mapping[str, Any]) -> float | None:
    """At the micro-batch that was predicted for. A smaller one that was taken in the end says: that one needs more than
    there is."""
    planned = predicted.get("micro_size")
    if micro_size == planned:
        return _ratio(values.get("peak_memory_gib"), _tensors_gib(predicted), None)
    if not _is_positive(micro_size) or not _is_positive(planned) or micro_size > planned:
        return None
    at_least = _ratio(predicted.get("available_gib"), predicted.get("need_gib"), predicted.get("memory_correction"))
    return None if at_least is None else max(1.0, at_least)


def _tensors_gib(predicted: Mapping[str, Any]) -> float | None:
    """By the prior: without what no tensor holds, of which a correction was told as a part."""
    parts = predicted.get("memory_gib")
    if not isinstance(parts, Mapping):
        return None
    return sum(float(size) for name, size in parts.items() if name not in ("fragmentation", "runtime"))


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
