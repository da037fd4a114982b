"""Data parallel: every rank holds the whole model; gradients are averaged in buckets while the backward pass runs.

A gang of one runs the bare module: there is nobody to average with.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from shunter_schemas.strategies import DdpStrategy
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from shunter_trainer.failures import UserFault
from shunter_trainer.models.materialise import materialise
from shunter_trainer.models.objective import Batch
from shunter_trainer.optim.optimizers import trainable
from shunter_trainer.strategies.base import Parts, Rehearsal, TorchStrategy
from shunter_trainer.strategies.names import unsaved_buffers


class Ddp(TorchStrategy):
    """`torch.nn.parallel.DistributedDataParallel`."""

    def __init__(self, document: DdpStrategy) -> None:
        self._document = document
        self._runner: nn.Module
        self._has_stepped = False

    def prepare(self, parts: Parts) -> None:
        materialise(parts.module.named_modules(), parts.fill, parts.gang.device)
        module = self._with_synchronised_norms(parts.module, parts.gang.device)
        self._runner = self._distributed(module, parts)
        self.adopt(module, parts)
        if parts.compute_dtype != self._parameters[0].dtype:
            self._autocast = partial(torch.autocast, parts.gang.device.type, parts.compute_dtype)

    def compute(self, batch: Batch) -> Tensor:
        if self._autocast is None:
            return self.objective(self._runner, batch)
        with self._autocast():
            return self.objective(self._runner, batch)

    def rehearsal(self) -> Rehearsal | None:
        distributed, document = isinstance(self._runner, DistributedDataParallel), self._document
        if distributed and (document.static_graph or document.sync_batch_norm):
            return None  # whose passes count, or whose norms ask the other ranks
        trained_bytes = sum(parameter.numel() * parameter.element_size() for parameter in self._parameters)
        return Rehearsal(
            run=self._rehearse,
            forget=self._forget_gradients,
            device=self.gang.device,
            buffers=tuple(self.module.buffers()),
            trained_bytes=trained_bytes,
            bucket_bytes=trained_bytes if distributed else 0,
        )

    def hold_gradients(self) -> AbstractContextManager[Any]:
        if not isinstance(self._runner, DistributedDataParallel):
            return nullcontext()
        if self._document.static_graph and not self._has_stepped:
            # DDP records the graph in its first backward pass and fails when that one is held. Reducing after every
            # micro-batch comes to the same: the mean of means.
            return nullcontext()
        return self._runner.no_sync()

    def communication_s(self) -> float | None:
        """By DDP's own clocks, in every hundredth backward pass: reducing buckets that nothing else ran beside."""
        if not isinstance(self._runner, DistributedDataParallel):
            return None
        runner: Any = self._runner
        measured = runner._get_ddp_logging_data()
        reducing, hidden = (measured.get(f"avg_backward_{name}_time") for name in ("comm", "compute_comm_overlap"))
        return None if not reducing or hidden is None else max(reducing - hidden, 0) / 1e9

    def step(self, factor: float | None, max_norm: float | None, *, measured: bool) -> Tensor | None:
        self._has_stepped = True
        return super().step(factor, max_norm, measured=measured)

    def _rehearse(self, batch: Batch) -> None:
        # The bare module: DDP sends no buffers then, and takes no part in the backward pass.
        with self._precision():
            loss = self.objective(self.module, batch)
        self.backward(loss)

    def _with_synchronised_norms(self, module: nn.Module, device: torch.device) -> nn.Module:
        if not self._document.sync_batch_norm:
            return module
        if device.type == "cpu":
            raise UserFault("/strategy/sync_batch_norm", "torch synchronises batch norms on GPUs only")
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
        return converted

    def _distributed(self, module: nn.Module, parts: Parts) -> nn.Module:
        if parts.gang.world_size == 1:
            return module
        device = parts.gang.device
        # Buffers that are not saved are tables, alike on every rank: not worth a broadcast in every step.
        set_ignored: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        set_ignored(module, unsaved_buffers(module))
        runner = DistributedDataParallel(
            module,
            device_ids=[device.index] if device.type == "cuda" else None,
            bucket_cap_mb=self._document.bucket_mb,
            static_graph=self._document.static_graph,
            find_unused_parameters=self._document.find_unused_parameters,
            gradient_as_bucket_view=True,
        )
        if parts.reduce_dtype != trainable(module)[0].dtype:
            self._reduce_in(parts.reduce_dtype, runner)
        return runner

    def _reduce_in(self, dtype: torch.dtype, runner: DistributedDataParallel) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        hooks = {torch.bfloat16: default_hooks.bf16_compress_hook, torch.float16: default_hooks.fp16_compress_hook}
        if dtype not in hooks:
            raise UserFault(
                "/workload/precision/reduce", "ddp reduces in the parameters' type, or fp32 ones in 16 bits"
            )
        runner.register_comm_hook(None, hooks[dtype])
