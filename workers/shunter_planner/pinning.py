"""What a plan fixes in the document that its nodes get: each `auto` that the trainer would have to decide otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shunter_schemas.batching import MICRO_SIZE, PLANNED

from shunter_planner.values import Plan


def pinned(document: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """The stored document with the plan's strategy, micro-batch and activation checkpointing in the place of `auto`.

    What the user chose stays as it is; documents of scripts too. `planned` names what the plan chose and the trainer
    may still change.
    """
    workload = document.get("workload") or {}
    if workload.get("kind") != "training":
        return dict(document)
    batch = workload.get("batch") or {}
    changed, planned = dict(workload), []
    if plan.micro_size is not None and batch.get("micro_size", "auto") == "auto":
        changed["batch"] = {**batch, "micro_size": plan.micro_size}
        planned.append(MICRO_SIZE)
    if plan.activation_checkpointing is not None and workload.get("activation_checkpointing", "auto") == "auto":
        changed["activation_checkpointing"] = plan.activation_checkpointing
    strategy = document.get("strategy") or {"kind": "auto"}
    if strategy.get("kind") == "auto":
        strategy = dict(plan.strategy)
    return {**document, "workload": changed, "strategy": strategy, PLANNED: planned}
