"""Plans as the API and the command line show them."""

from __future__ import annotations

from datetime import datetime

from shunter_schemas.api.plans import (
    PlanAnswer,
    PlannedCost,
    PlannedMemory,
    PlannedRun,
    PlannedTime,
    Refused,
    RejectedOffer,
)

from shunter_planner.predictions import Prediction
from shunter_planner.values import Alternative, Plan, Refusal, Rejection


def answer_of(
    found: Plan | Refusal, *, offers: int, as_of: datetime | None = None, expires_at: datetime | None = None
) -> PlanAnswer:
    """What the planner said, with when its offers were read and until when they hold."""
    rejected = tuple(_rejected(entry) for entry in found.rejected)
    counts = dict(found.rejected_by)
    if isinstance(found, Refusal):
        return PlanAnswer(
            refused=Refused(reason=found.reason, detail=found.detail, final=found.final),
            rejected=rejected,
            rejected_by=counts,
            offers=offers,
            as_of=as_of,
            expires_at=expires_at,
        )
    return PlanAnswer(
        chosen=_chosen(found),
        notes=tuple(found.notes),
        alternatives=tuple(_alternative(one) for one in found.alternatives),
        rejected=rejected,
        rejected_by=counts,
        offers=offers,
        as_of=as_of,
        expires_at=expires_at,
    )


def memory_of(prediction: Prediction | None) -> PlannedMemory | None:
    """The memory of a prediction."""
    if prediction is None:
        return None
    return PlannedMemory(
        need_gib=prediction.need_gib,
        available_gib=prediction.available_gib or None,
        parts_gib=dict(prediction.memory_gib),
        host_gib=prediction.host_gib,
    )


def time_of(prediction: Prediction | None) -> PlannedTime | None:
    """The time of a prediction."""
    if prediction is None:
        return None
    return PlannedTime(
        step_s=prediction.step_s,
        parts_s=dict(prediction.step_parts_s),
        tokens_per_s=prediction.tokens_per_s,
        mfu=prediction.mfu,
        steps=prediction.steps,
        start_up_s=prediction.start_up_s,
        duration_s=prediction.duration_s,
        low_s=prediction.duration_low_s,
        high_s=prediction.duration_high_s,
    )


def cost_of(usd_per_hour: float, prediction: Prediction | None) -> PlannedCost:
    """The money of a prediction; without one only the rate is known."""
    if prediction is None:
        return PlannedCost(usd_per_hour=usd_per_hour)
    return PlannedCost(
        usd_per_hour=usd_per_hour,
        usd=prediction.cost_usd,
        low_usd=prediction.cost_low_usd,
        high_usd=prediction.cost_high_usd,
        parts_usd=dict(prediction.cost_parts_usd),
        usd_per_million_tokens=prediction.usd_per_million_tokens,
    )


def _chosen(plan: Plan) -> PlannedRun:
    offer = plan.offer
    return PlannedRun(
        provider=plan.instance,
        instance_type=offer.instance_type,
        region=offer.region,
        gpu_model=offer.gpu_model if plan.slot_kind == "gpu" else None,
        capacity=offer.capacity,
        num_nodes=plan.num_nodes,
        ranks_per_node=plan.ranks_per_node,
        strategy=dict(plan.strategy),
        micro_size=plan.micro_size,
        accumulation=plan.accumulation,
        activation_checkpointing=plan.activation_checkpointing,
        why=plan.why,
        memory=memory_of(plan.prediction),
        time=time_of(plan.prediction),
        cost=cost_of(plan.usd_per_hour, plan.prediction),
    )


def _alternative(one: Alternative) -> PlannedRun:
    return PlannedRun(
        provider=one.instance,
        instance_type=one.instance_type,
        region=one.region,
        gpu_model=one.gpu_model,
        capacity=one.capacity,
        num_nodes=one.num_nodes,
        ranks_per_node=one.ranks_per_node,
        strategy=dict(one.strategy),
        micro_size=one.micro_size,
        accumulation=one.accumulation,
        activation_checkpointing=one.activation_checkpointing,
        memory=memory_of(one.prediction),
        time=time_of(one.prediction),
        cost=cost_of(one.usd_per_hour, one.prediction),
    )


def _rejected(entry: Rejection) -> RejectedOffer:
    return RejectedOffer(
        provider=entry.instance,
        instance_type=entry.instance_type,
        region=entry.region,
        reason=entry.reason,
        detail=entry.detail,
        final=entry.final,
    )
