"""ZeRO stage 0: nothing is split. DeepSpeed's engine reduces gradients; optimizer and parameters are torch's own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from shunter_schemas.strategies import DeepSpeedStrategy
from torch import Tensor

from shunter_trainer.models.materialise import materialise
from shunter_trainer.models.objective import Batch
from shunter_trainer.strategies.axes import check_axes
from shunter_trainer.strategies.base import Parts, TorchStrategy
from shunter_trainer.strategies.deepspeed.engine import (
    config_for,
    holding,
    maker_for,
    recall_scheduler,
    scheduler_memory,
)
from shunter_trainer.strategies.deepspeed.library import load_deepspeed, make_engine


class Replicated(TorchStrategy):
    """DeepSpeed's engine around a plain module."""

    def __init__(self, document: DeepSpeedStrategy) -> None:
        self._document = document
        self._engine: Any

    def prepare(self, parts: Parts) -> None:
        check_axes(parts.module)
        deepspeed = load_deepspeed(parts.gang, self._document.config)
        config = config_for(self._document, parts)
        materialise(parts.module.named_modules(), parts.fill, parts.gang.device)
        self.adopt(parts.module, replace(parts, make_optimizer=maker_for(self._document, parts)))
        if parts.compute_dtype != self._parameters[0].dtype:
            self._autocast = partial(torch.autocast, parts.gang.device.type, parts.compute_dtype)
        self._engine = make_engine(deepspeed, parts.module, self.optimizer, config)
        self._engine.set_gradient_accumulation_boundary(True)

    @property
    def peak_lr(self) -> float | None:
        return self.optimizer.param_groups[0]["lr"] if self._engine.lr_scheduler is not None else super().peak_lr

    def compute(self, batch: Batch) -> Tensor:
        with self._precision():
            return self.objective(self._engine, batch)

    def backward(self, loss: Tensor) -> None:
        self._engine.backward(loss if self._scale is None else self._scale.scaled(loss), scale_wrt_gas=False)

    def hold_gradients(self) -> AbstractContextManager[Any]:
        return holding(self._engine)

    def memory(self) -> dict[str, float]:
        return {**super().memory(), **scheduler_memory(self._engine)}

    def recall(self, memory: Mapping[str, float]) -> None:
        super().recall(memory)
        recall_scheduler(self._engine, memory)

    def _update(self) -> None:
        self._engine.step()
