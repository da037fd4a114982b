"""What both adapters do with DeepSpeed's engine: forward, backward, whose turn it is to reduce, learning rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from shunter_schemas.deepspeed.training import TrainingFacts, training_config
from shunter_schemas.strategies import DeepSpeedStrategy

from shunter_trainer.optim.loss_scale import GOOD_STEPS, SCALE
from shunter_trainer.optim.optimizers import MakeOptimizer
from shunter_trainer.strategies.base import Parts
from shunter_trainer.strategies.deepspeed.library import has_compiled_adam
from shunter_trainer.strategies.deepspeed.optimizers import on_cpu, optimizer_maker

_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_SCHEDULER = "deepspeed_scheduler"


def config_for(document: DeepSpeedStrategy, parts: Parts) -> dict[str, Any]:
    """The whole DeepSpeed document of this training."""
    facts = TrainingFacts(
        world_size=parts.gang.world_size,
        micro_size=parts.micro_size,
        accumulation=parts.accumulation,
        compute=_NAMES[parts.compute_dtype],
        reduce=_NAMES[parts.reduce_dtype],
        parameters=sum(parameter.numel() for parameter in parts.module.parameters()),
        on_gpus=parts.gang.device.type == "cuda",
    )
    return training_config(document, facts)


def maker_for(document: DeepSpeedStrategy, parts: Parts) -> MakeOptimizer:
    """How to make the optimizer: the raw document's, if it names one, else the workload's."""
    spec = document.config.get("optimizer")
    make = optimizer_maker(spec) if isinstance(spec, dict) else parts.make_optimizer
    asked = document.config.get("zero_force_ds_cpu_optimizer") is True
    return on_cpu(make) if document.offload_optimizer == "cpu" and (asked or has_compiled_adam()) else make


@contextmanager
def holding(engine: Any) -> Iterator[None]:
    """Inside, a backward pass does not end an optimizer step."""
    engine.set_gradient_accumulation_boundary(False)
    try:
        yield
    finally:
        engine.set_gradient_accumulation_boundary(True)


def scheduler_memory(engine: Any) -> dict[str, float]:
    """Where DeepSpeed's own scheduler stands."""
    if engine.lr_scheduler is None:
        return {}
    return {_SCHEDULER: float(engine.lr_scheduler.last_batch_iteration)}


def recall_scheduler(engine: Any, memory: Mapping[str, float]) -> None:
    """Bring DeepSpeed's own scheduler, and the groups that it moves, to where it stood."""
    if engine.lr_scheduler is not None and memory.get(_SCHEDULER, -1.0) >= 0:
        engine.lr_scheduler.step(int(memory[_SCHEDULER]))


def scale_memory(zero: Any) -> dict[str, float]:
    """The engine's own loss scale, under the names that every strategy gives it."""
    scaler: Any = getattr(zero, "loss_scaler", None)
    if not hasattr(scaler, "last_overflow_iter"):
        return {}
    good_steps = scaler.cur_iter - 1 - scaler.last_overflow_iter
    return {SCALE: float(scaler.cur_scale), GOOD_STEPS: float(max(good_steps, 0))}


def recall_scale(zero: Any, memory: Mapping[str, float]) -> None:
    """Go on with the loss scale that was saved."""
    scaler: Any = getattr(zero, "loss_scaler", None)
    if hasattr(scaler, "last_overflow_iter") and SCALE in memory:
        scaler.cur_scale = memory[SCALE]
        scaler.last_overflow_iter = scaler.cur_iter - 1 - int(memory.get(GOOD_STEPS, 0))
