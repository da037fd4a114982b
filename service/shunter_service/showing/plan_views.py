"""The plan of a job as the API shows it: what was predicted, beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from shunter_planner.answers import cost_of, memory_of, time_of
from shunter_planner.predictions import prediction_from_json
from shunter_schemas.api import JobPlan, Measured
from shunter_schemas.states import NodeState, State
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.standings import Standing


def plan_view(stored: Mapping[str, Any], standing: Standing) -> JobPlan:
    """The plan of the current attempt. One that an earlier release stored predicts nothing."""
    offer = cast("Mapping[str, Any]", stored.get("offer") or {})
    strategy = cast("Mapping[str, Any]", stored.get("strategy") or {})
    told = stored.get("prediction")
    predicted = None if told is None else prediction_from_json(told)
    rate = float(stored.get("usd_per_hour") or 0.0)
    return JobPlan(
        strategy=str(strategy.get("kind", "")),
        why=str(stored.get("why") or "asked for"),
        provider=str(stored.get("instance", "")),
        instance_type=str(offer.get("instance_type", "")),
        region=str(offer.get("region", "")),
        jurisdiction=str(offer.get("jurisdiction", "")),
        gpu_model=offer.get("gpu_model"),
        num_nodes=int(stored["num_nodes"]),
        ranks_per_node=int(stored["ranks_per_node"]),
        world_size=int(stored["world_size"]),
        micro_size=stored.get("micro_size"),
        accumulation=stored.get("accumulation"),
        activation_checkpointing=stored.get("activation_checkpointing"),
        usd_per_hour=rate,
        notes=tuple(stored.get("notes") or ()),
        memory=memory_of(predicted),
        time=time_of(predicted),
        cost=None if predicted is None else cost_of(rate, predicted),
        measured=_measured(standing),
    )


def _measured(standing: Standing) -> Measured | None:
    """Of the attempt that the plan is for."""
    found = Measured(
        tokens_per_s=_reported(standing, "tokens_per_s"),
        peak_memory_gib=_reported(standing, "peak_memory_gib"),
        start_up_s=_start_up_s(standing),
        usd_per_hour=_billed(standing),
        micro_size=_tried_micro_size(standing),
    )
    return found if found.model_dump(exclude_none=True) else None


def _reported(standing: Standing, name: str) -> float | None:
    newest = standing.progress[-1] if standing.progress else None
    if newest is None or newest.generation < standing.row.generation:
        return None
    value = newest.values.get(name)
    return float(value) if isinstance(value, int | float) else None


def _tried_micro_size(standing: Standing) -> int | None:
    size = _reported(standing, "micro_size")
    return None if size is None or not 1 <= size <= 1e9 else int(size)


def _start_up_s(standing: Standing) -> float | None:
    """From the newest plan to the moment that every rank ran."""
    planned = None
    for move in reversed(standing.moves):
        if move.trigger is Trigger.PLANNED:
            planned = move.at
            break
    if planned is None:
        return None
    ran = next((move.at for move in standing.moves if move.to_state is State.RUNNING and move.at >= planned), None)
    return None if ran is None else (ran - planned).total_seconds()


def _billed(standing: Standing) -> float | None:
    rates = [node.billed_usd_per_hour for node in standing.nodes if node.handle and node.state is not NodeState.GONE]
    return sum(rates) if any(rates) else None
