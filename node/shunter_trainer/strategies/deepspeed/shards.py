"""What ZeRO leaves on this rank of parameters and optimizer state, as pieces under the parameters' own names.

ZeRO lays parameters one after the other into flat tensors, in fp32, and gives each rank an equal part of each. Stages 1
and 2 cut the flat tensor, stage 3 every parameter. An optimizer has one state for each flat tensor of this rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shunter_trainer.strategies.deepspeed.pieces import Piece


class Shard(NamedTuple):
    """Where elements of one parameter are: `length` of them, the parameter's from `start` on, at `offset` of `flat`."""

    flat: Tensor
    offset: int
    start: int
    length: int

    def piece(self, shape: torch.Size, of: Tensor | None = None) -> Piece:
        """These elements of the parameter itself, or of a tensor of its optimizer state."""
        memory = self.flat if of is None else of
        return Piece.of(shape, self.start, memory.detach()[self.offset : self.offset + self.length])


class Shards(ABC):
    """One rank's part of a model under ZeRO."""

    def __init__(self, engine: Any, module: nn.Module) -> None:
        self.zero: Any = engine.optimizer
        self._module = module
        self._any_norm = [torch.ones(())]

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Torch's own optimizer over the flat tensors."""
        found: torch.optim.Optimizer = self.zero.optimizer
        return found

    def trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters that are trained, each under the first of its names."""
        return ((name, p) for name, p in self._module.named_parameters() if p.requires_grad)

    @abstractmethod
    def shape(self, parameter: nn.Parameter) -> torch.Size:
        """The shape of the whole parameter."""

    @abstractmethod
    def of(self, parameter: nn.Parameter) -> Shard:
        """Where this rank has its elements of a parameter that is trained; perhaps none."""

    @abstractmethod
    def frozen(self, parameter: nn.Parameter) -> Tensor:
        """What this rank has of a parameter that is not trained."""

    @abstractmethod
    def whole(self, parameter: nn.Parameter) -> Tensor:
        """The whole parameter, gathered. Every rank must call it."""

    @abstractmethod
    def publish(self) -> None:
        """Bring what stands in the flat tensors, and in frozen partitions, into the parameters the model runs with."""

    @abstractmethod
    def measure(self, wanted: bool) -> None:
        """Whether the next step measures the norm of all gradients, which communicates. Clipping needs it."""

    def norm(self, scale: float) -> Tensor:
        """What the last step measured, given the loss scale it began with; not finite where gradients were not."""
        told = self.zero._global_grad_norm
        if isinstance(told, Tensor):
            return told
        # A plain number after an overflow. At a look it stands beside the norms of other steps.
        return torch.tensor(float(told), device=self._norms_device)

    @property
    def _norms_device(self) -> torch.device:
        return torch.device(self.zero.device)


class FlatShards(Shards):
    """Stages 1 and 2."""

    def __init__(self, engine: Any, module: nn.Module) -> None:
        super().__init__(engine, module)
        self._nothing = torch.empty(0)

    def shape(self, parameter: nn.Parameter) -> torch.Size:
        return parameter.shape

    def of(self, parameter: nn.Parameter) -> Shard:
        # Kept by DeepSpeed for its universal checkpoints; None: this rank has no part of the parameter.
        mapping: Any = getattr(parameter, "_hp_mapping")  # noqa: B009
        if mapping is None:
            return Shard(self._flat_of(parameter), 0, 0, 0)
        flat = self.optimizer.param_groups[mapping.param_group_index]["params"][0]
        address = mapping.hp_fragment_address
        return Shard(flat, address.start, mapping.lp_fragment_address.start, address.numel)

    def frozen(self, parameter: nn.Parameter) -> Tensor:
        return parameter.detach()

    def whole(self, parameter: nn.Parameter) -> Tensor:
        if not parameter.requires_grad:
            return parameter.detach()
        gathered: Tensor = parameter.get_full_hp_param()  # type: ignore[attr-defined]  # bound by DeepSpeed
        return gathered

    def publish(self) -> None:
        self.zero.update_lp_params()

    def measure(self, wanted: bool) -> None:
        self.zero.compute_grad_norm = wanted

    def _flat_of(self, parameter: nn.Parameter) -> Tensor:
        for group, members in zip(self.optimizer.param_groups, self._members(), strict=True):
            if any(parameter is member for member in members):
                flat: Tensor = group["params"][0]
                return flat
        return self._nothing

    def _members(self) -> list[list[nn.Parameter]]:
        found: list[list[nn.Parameter]] = self.zero.bit16_groups
        return found


class Bf16Shards(FlatShards):
    """Stage 1 in bf16 with gradients gathered in fp32, for which DeepSpeed has an optimizer of its own."""

    def measure(self, wanted: bool) -> None:
        _answer(self.zero, "get_grads_for_norm", None if wanted else lambda: (self._any_norm, {}))

    @property
    def _norms_device(self) -> torch.device:
        flat: Tensor = self.optimizer.param_groups[0]["params"][0]
        return flat.device

    def _members(self) -> list[list[nn.Parameter]]:
        found: list[list[nn.Parameter]] = self.zero.bf16_groups
        return found


class SplitShards(Shards):
    """Stage 3."""

    def shape(self, parameter: nn.Parameter) -> torch.Size:
        found: torch.Size = parameter.ds_shape  # type: ignore[attr-defined]
        return found

    def of(self, parameter: nn.Parameter) -> Shard:
        group, offset, size = self.zero.grad_position[self.zero.get_param_id(parameter)]
        start, length = _range(parameter, size)
        return Shard(self.zero.fp32_partitioned_groups_flat[group], offset, start, length)

    def frozen(self, parameter: nn.Parameter) -> Tensor:
        partition: Any = parameter.ds_tensor  # type: ignore[attr-defined]
        start, length = _range(parameter, partition.ds_numel)
        return Piece.of(self.shape(parameter), start, partition.data.view(-1)[:length])

    def whole(self, parameter: nn.Parameter) -> Tensor:
        if parameter.requires_grad:
            gathered: Tensor = self.zero.get_full_hp_param(parameter)
            return gathered
        from deepspeed.runtime.zero import GatheredParameters

        with GatheredParameters([parameter]):
            return parameter.detach().clone()

    def publish(self) -> None:
        zero = self.zero
        zero._partition_all_parameters()
        for group in range(len(zero.fp16_groups)):
            zero._reassign_or_swap_out_partitioned_parameters(group)
        if zero.persistent_parameters:
            zero.persistent_parameters[0].all_gather(zero.persistent_parameters)

    def measure(self, wanted: bool) -> None:
        _answer(self.zero, "_get_norm_groups", None if wanted else lambda: self._any_norm)

    def norm(self, scale: float) -> Tensor:
        # Divided by the scale as it was after the step.
        grown: float = self.zero.loss_scale / scale
        return super().norm(scale) if grown == 1.0 else super().norm(scale) * grown


def _answer(zero: Any, method: str, answer: Callable[[], Any] | None) -> None:
    """Have DeepSpeed take this answer for that of its own method; None: ask the method again."""
    if answer is not None:
        setattr(zero, method, answer)
    else:
        vars(zero).pop(method, None)


def _range(parameter: nn.Parameter, size: int) -> tuple[int, int]:
    """First element and number of elements of a partition of `size` elements, padding left out."""
    numel, rank = int(parameter.ds_numel), int(parameter.ds_zero_partition_rank)  # type: ignore[attr-defined]
    start = min(rank * size, numel)
    return start, min(size, numel - start)


def shards_of(engine: Any, module: nn.Module) -> Shards:
    """The shards behind this engine."""
    from deepspeed.runtime.bf16_optimizer import BF16_Optimizer

    if engine.zero_optimization_stage() == 3:
        return SplitShards(engine, module)
    return Bf16Shards(engine, module) if isinstance(engine.optimizer, BF16_Optimizer) else FlatShards(engine, module)
