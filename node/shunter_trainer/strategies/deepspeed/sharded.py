"""ZeRO stages 1 to 3: optimizer state, gradients and parameters are split by DeepSpeed's engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from shunter_schemas.strategies import DeepSpeedStrategy
from torch import Tensor, nn

from shunter_trainer.failures import NonFinite, UserFault
from shunter_trainer.gang import Gang
from shunter_trainer.models.materialise import materialise
from shunter_trainer.models.objective import Batch, Objective
from shunter_trainer.optim.elementwise import is_elementwise
from shunter_trainer.strategies.axes import check_axes
from shunter_trainer.strategies.base import Parts, Stored, Strategy, Wanted, all_of_them
from shunter_trainer.strategies.buffers import agree_on_buffers
from shunter_trainer.strategies.deepspeed.engine import (
    config_for,
    holding,
    maker_for,
    recall_scale,
    recall_scheduler,
    scale_memory,
    scheduler_memory,
)
from shunter_trainer.strategies.deepspeed.library import load_deepspeed, make_engine
from shunter_trainer.strategies.deepspeed.partition import partition
from shunter_trainer.strategies.deepspeed.shards import Shards, shards_of
from shunter_trainer.strategies.deepspeed.state import empty_state, load_state, state_of
from shunter_trainer.strategies.names import GROUPS, restore_groups


class Sharded(Strategy):
    """DeepSpeed's engine with one of its ZeRO optimizers."""

    def __init__(self, document: DeepSpeedStrategy) -> None:
        self._document = document
        self._engine: Any
        self._objective: Objective
        self._module: nn.Module
        self._shards: Shards
        self._peak_lrs: list[float]
        self._keeps_groups: bool
        self._gang: Gang
        self._compute_dtype: torch.dtype
        self._precision: Callable[[], AbstractContextManager[Any]] = nullcontext

    def prepare(self, parts: Parts) -> None:
        if parts.keeps_groups and not is_elementwise(parts.make_optimizer):
            raise UserFault("/workload/optimizer/target", _LOOKS_AT_MATRICES)
        check_axes(parts.module)
        deepspeed = load_deepspeed(parts.gang, self._document.config)
        config = config_for(self._document, parts)
        if self._document.zero_stage == 3:
            partition(deepspeed, parts, config, parts.compute_dtype)
        else:
            materialise(parts.module.named_modules(), parts.fill, parts.gang.device)
        optimizer = maker_for(self._document, parts)(parts.module)
        self._peak_lrs = [float(group.get("lr", 0.0)) for group in optimizer.param_groups]
        self._keeps_groups, self._gang = parts.keeps_groups, parts.gang
        self._objective, self._module = parts.objective, parts.module
        self._compute_dtype = parts.compute_dtype
        if parts.compute_dtype != torch.float32:
            self._precision = partial(torch.autocast, parts.gang.device.type, parts.compute_dtype)
            parts.module.forward = _under(self._precision, parts.module.forward)
        self._engine = make_engine(deepspeed, parts.module, optimizer, config)
        self._engine.set_gradient_accumulation_boundary(True)
        self._shards = shards_of(self._engine, parts.module)

    @property
    def peak_lr(self) -> float | None:
        group = self._shards.optimizer.param_groups[0]
        if "lr" not in group:
            return None
        return float(group["lr"]) if self._engine.lr_scheduler is not None else self._peak_lrs[0]

    @property
    def loss_scale(self) -> float | None:
        return float(self._shards.zero.loss_scale) if self._compute_dtype == torch.float16 else None

    def memory(self) -> dict[str, float]:
        return {**scheduler_memory(self._engine), **scale_memory(self._shards.zero)}

    def recall(self, memory: Mapping[str, float]) -> None:
        recall_scheduler(self._engine, memory)
        recall_scale(self._shards.zero, memory)

    def compute(self, batch: Batch) -> Tensor:
        return self._loss(batch)[1]

    def outputs(self, batch: Batch) -> tuple[Any, Tensor]:
        with torch.no_grad():
            return self._loss(batch)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        agree_on_buffers(self._module, self._gang)
        self._engine.eval()
        try:
            yield
        finally:
            self._engine.train()

    def backward(self, loss: Tensor) -> None:
        self._engine.backward(loss, scale_wrt_gas=False)

    def hold_gradients(self) -> AbstractContextManager[Any]:
        return holding(self._engine)

    def step(self, factor: float | None, max_norm: float | None, *, measured: bool) -> Tensor | None:
        if factor is not None:
            for group, peak_lr in zip(self._shards.optimizer.param_groups, self._peak_lrs, strict=True):
                group["lr"] = peak_lr * factor
        measured = measured or max_norm is not None
        self._shards.measure(measured)
        self._shards.zero.clip_grad = max_norm or 0.0
        scale = self._scale
        try:
            self._engine.step()
        except Exception as error:
            if "already at minimum" in str(error):
                raise NonFinite(_SCALE_COLLAPSED) from error
            raise
        return self._shards.norm(scale) if measured else None

    def state(self) -> dict[str, Any]:
        return state_of(self._module, self._shards)

    def empty_state(self, stored: Mapping[str, Stored]) -> dict[str, Any]:
        return empty_state(self._module, self._shards, stored)

    def load(self, state: Mapping[str, Any]) -> None:
        load_state(self._module, self._shards, state)
        if self._keeps_groups:
            restore_groups(self._shards.optimizer, state[GROUPS])

    def weights(self, wanted: Wanted = all_of_them) -> Iterator[tuple[str, Tensor]]:
        parameters = dict(self._module.named_parameters(remove_duplicate=False))
        for name, value in self._module.state_dict().items():
            if wanted(name):
                whole = self._shards.whole(parameters[name]) if name in parameters else value
                yield name, whole.detach().cpu()

    @property
    def _scale(self) -> float:
        return float(getattr(self._shards.zero, "loss_scale", 1.0))

    def _loss(self, batch: Batch) -> tuple[Any, Tensor]:
        outputs = self._objective.outputs(self._engine, batch)
        with self._precision():
            return outputs, self._objective.loss(outputs, batch)


def _under(precision: Callable[[], AbstractContextManager[Any]], forward: Callable[..., Any]) -> Callable[..., Any]:
    """Norms, softmax and losses in fp32, whatever the parameters' type, as under every other strategy.

    Around the module's own `forward`, since DeepSpeed's engine turns an autocast around itself off.
    """

    def forward_under_precision(*args: Any, **kwargs: Any) -> Any:
        with precision():
            return forward(*args, **kwargs)

    return forward_under_precision


_SCALE_COLLAPSED = (
    "The loss scale fell to its minimum, and gradients in fp16 still overflow. Use precision bf16, lower "
    "workload.optimizer.lr, or look for bad samples."
)
_LOOKS_AT_MATRICES = (
    "it looks at each parameter as a whole, and ZeRO gives it parts of flat ones, on which it fails or trains another "
    "way; use strategy ddp, or zero_stage 0"
)
