"""What the loop asks of a strategy. The loop does not know which one it has.

The order of one step: for every micro-batch but the last, `compute` and `backward` under `hold_gradients`; then the
last without it; then `clip`, then `step`. `state` and `load` speak of whole tensors (or DTensors) by fully qualified
name, the same names under every strategy, so that a checkpoint of one is read by another.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shunter_trainer.gang import Gang
from shunter_trainer.models.materialise import Filler, keep_values
from shunter_trainer.models.objective import Batch, Objective
from shunter_trainer.optim.loss_scale import LossScale
from shunter_trainer.optim.optimizers import MakeOptimizer, trainable
from shunter_trainer.strategies.buffers import agree_on_buffers
from shunter_trainer.strategies.names import (
    GROUPS,
    model_entries,
    optimizer_entries,
    restore_groups,
    split_optimizer_name,
)

# Kernels over whole lists; one call for all gradients is several times faster than torch.nn.utils on CPUs.
_foreach_norm = torch._foreach_norm  # pyright: ignore[reportPrivateImportUsage]
_foreach_mul_ = torch._foreach_mul_  # pyright: ignore[reportPrivateImportUsage]

Wanted = Callable[[str], bool]


def all_of_them(name: str) -> bool:
    """Whatever its name."""
    return True


Stored = tuple[torch.Size, torch.dtype] | None
"""Form of an entry of a checkpoint; None: not a tensor."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a strategy spreads over the ranks."""

    module: nn.Module
    """On the meta device, or with its values on the CPU; `materialise` brings it, or a part of it, to the device."""
    objective: Objective
    make_optimizer: MakeOptimizer
    keeps_groups: bool
    """Whether the settings of the optimizer's groups are state (the user's own optimizer) or the document's."""
    compute_dtype: torch.dtype
    reduce_dtype: torch.dtype
    gang: Gang
    fill: Filler = keep_values
    """Gives what lies on the meta device its first values."""
    micro_size: int = 1
    """Samples of one forward pass on one rank."""
    accumulation: int = 1
    """Forward passes of one rank in one step."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A forward and backward pass that a rank does by itself, to see whether its memory suffices."""

    run: Callable[[Batch], None]
    forget: Callable[[], None]
    """Lets the gradients of it go, also of one that broke off."""
    device: torch.device
    buffers: tuple[Tensor, ...]
    trained_bytes: int
    bucket_bytes: int
    """Room for gradients that is there already, beside which a rehearsal makes its own."""


class Strategy(ABC):
    """One way of spreading a training over the ranks of a gang."""

    @property
    @abstractmethod
    def peak_lr(self) -> float | None:
        """The learning rate that the optimizer was made with; None: it has none."""

    @property
    def loss_scale(self) -> float | None:
        """By what losses are multiplied before they are differentiated; None: by nothing. May wait for the device."""
        return None

    def memory(self) -> dict[str, float]:
        """Small numbers of its own that a checkpoint has to keep besides `state`; the same on every rank."""
        return {}

    def recall(self, memory: Mapping[str, float]) -> None:  # noqa: B027  # most have nothing to remember
        """Take over what `memory` gave, perhaps that of another strategy: names that are not known are left alone."""

    def rehearsal(self) -> Rehearsal | None:
        """What tries a micro-batch before the first step. None: a rank cannot do that without the others."""
        return None

    def communication_s(self) -> float | None:
        """Seconds that a backward pass waited for other ranks, by the newest measurement; None: not measured here."""
        return None

    @abstractmethod
    def prepare(self, parts: Parts) -> None:
        """Bring the model into its distributed form and make the optimizer. Every rank calls it; may communicate."""

    @abstractmethod
    def compute(self, batch: Batch) -> Tensor:
        """The loss of one micro-batch of this rank, under the precision's rules. Call `backward` on a share of it."""

    @abstractmethod
    def outputs(self, batch: Batch) -> tuple[Any, Tensor]:
        """Outputs and loss without gradients; the model is in evaluation mode (see `evaluating`)."""

    @abstractmethod
    def evaluating(self) -> AbstractContextManager[None]:
        """Inside, the model is in evaluation mode, and the same on every rank. Every rank calls it; communicates."""

    @abstractmethod
    def backward(self, loss: Tensor) -> None:
        """Add the gradients of this rank's loss; the gradient of a step is their mean over the ranks."""

    @abstractmethod
    def hold_gradients(self) -> AbstractContextManager[Any]:
        """Inside, another micro-batch of the step follows: reducing gradients between ranks may wait for the last."""

    @abstractmethod
    def step(self, factor: float | None, max_norm: float | None, *, measured: bool) -> Tensor | None:
        """Update the parameters at this share of the peak learning rate (None: leave it alone); clear the gradients.

        Returns the global norm of the gradients before they were scaled down to `max_norm` (None: left alone), a plain
        scalar, the same on every rank. It is there when it was to be `measured`, and when the update needed it; an
        update whose norm is known and not finite is left out.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Model and optimizer state by name (`shunter_trainer.strategies.names`), by reference, not copied."""

    @abstractmethod
    def empty_state(self, stored: Mapping[str, Stored]) -> dict[str, Any]:
        """Room to load a checkpoint into, given what it holds."""

    @abstractmethod
    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what was read into `empty_state`."""

    @abstractmethod
    def weights(self, wanted: Wanted = all_of_them) -> Iterator[tuple[str, Tensor]]:
        """Whole parameters and persistent buffers on the CPU, one after the other. Every rank must walk through it.

        Only those whose names are `wanted`, by the same choice on every rank, are gathered.
        """


class TorchStrategy(Strategy):
    """What strategies share whose model is a plain module and whose optimizer is torch's."""

    gang: Gang
    module: nn.Module
    """The model under its own names."""
    objective: Objective
    optimizer: torch.optim.Optimizer
    keeps_groups: bool
    _parameters: list[nn.Parameter]
    _peak_lrs: list[float]
    _autocast: Callable[[], AbstractContextManager[Any]] | None = None
    _scale: LossScale | None = None

    def adopt(self, module: nn.Module, parts: Parts) -> None:
        """Take the model in its final form and make the optimizer; part of `prepare`."""
        self.gang = parts.gang
        self.objective = parts.objective
        self.keeps_groups = parts.keeps_groups
        self.module = module
        self.optimizer = parts.make_optimizer(module)
        self._parameters = trainable(module)
        self._peak_lrs = [float(group.get("lr", 0.0)) for group in self.optimizer.param_groups]
        if parts.compute_dtype == torch.float16:
            # Beside the gradients, which offload brings to the CPU.
            self._scale = LossScale(self._parameters[0].device)

    @property
    def loss_scale(self) -> float | None:
        return None if self._scale is None else self._scale.value

    def memory(self) -> dict[str, float]:
        return {} if self._scale is None else self._scale.memory()

    def recall(self, memory: Mapping[str, float]) -> None:
        if self._scale is not None:
            self._scale.recall(memory)

    @property
    def peak_lr(self) -> float | None:
        return self._peak_lrs[0] if "lr" in self.optimizer.param_groups[0] else None

    def outputs(self, batch: Batch) -> tuple[Any, Tensor]:
        with torch.no_grad(), self._precision():
            outputs = self.objective.outputs(self.module, batch)
            return outputs, self.objective.loss(outputs, batch)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        agree_on_buffers(self.module, self.gang)
        self.module.eval()
        try:
            yield
        finally:
            self.module.train()

    def backward(self, loss: Tensor) -> None:
        torch.autograd.backward(loss if self._scale is None else self._scale.scaled(loss))

    def clip(self, max_norm: float | None) -> Tensor:
        """Scale the gradients down to this norm (None: leave them alone); the norm that they had."""
        gradients = self._gradients()
        norm = self._over_ranks(torch.linalg.vector_norm(torch.stack(_foreach_norm(gradients))))
        if self._scale is not None:
            return self._unscale(gradients, norm, max_norm)
        if max_norm is not None:
            scale = max_norm / (norm + 1e-6)
            if norm.device.type != "cpu":
                _foreach_mul_(gradients, scale.clamp(max=1.0))
            elif scale.item() < 1.0:
                _foreach_mul_(gradients, scale)
        return norm

    def _unscale(self, gradients: list[Tensor], scaled_norm: Tensor, max_norm: float | None) -> Tensor:
        """Take the loss scale out of gradients, and clip them in the same pass; their norm without the scale."""
        assert self._scale is not None
        inverse = self._scale.inverse
        norm = scaled_norm * inverse
        clipped = 1.0 if max_norm is None else (max_norm / (norm + 1e-6)).clamp(max=1.0)
        _foreach_mul_(gradients, inverse * clipped)
        return norm

    def step(self, factor: float | None, max_norm: float | None, *, measured: bool) -> Tensor | None:
        # In fp16 the norm tells whether gradients overflowed.
        needed = max_norm is not None or self._scale is not None
        norm = self.clip(max_norm) if measured or needed else None
        if norm is None or self._allows(norm):
            if factor is not None:
                for group, peak_lr in zip(self.optimizer.param_groups, self._peak_lrs, strict=True):
                    group["lr"] = peak_lr * factor
            self._update()
        if self._scale is not None and norm is not None:
            self._scale.update(norm)
        self._forget_gradients()
        return norm

    def state(self) -> dict[str, Any]:
        return {**model_entries(self.module), **optimizer_entries(self.module, self.optimizer)}

    def empty_state(self, stored: Mapping[str, Stored]) -> dict[str, Any]:
        entries = model_entries(self.module)
        parameters = dict(self.module.named_parameters())
        on_device = any(group.get("fused") or group.get("capturable") for group in self.optimizer.param_groups)
        for name, form in stored.items():
            if name == GROUPS:
                entries[name] = ""
            elif (parts := split_optimizer_name(name)) is not None and parts[0] in parameters:
                entries[name] = _room(parameters[parts[0]], form, on_device)
        return entries

    def load(self, state: Mapping[str, Any]) -> None:
        # Model entries were read in place; a new optimizer has no state yet, so its entries are put in.
        parameters = dict(self.module.named_parameters())
        for name, value in state.items():
            if (parts := split_optimizer_name(name)) is not None:
                self.optimizer.state[parameters[parts[0]]][parts[1]] = value
        if self.keeps_groups:
            restore_groups(self.optimizer, state[GROUPS])

    def weights(self, wanted: Wanted = all_of_them) -> Iterator[tuple[str, Tensor]]:
        for name, value in self.module.state_dict().items():
            if wanted(name):
                yield name, value.detach().cpu()

    def _forget_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def _update(self) -> None:
        self.optimizer.step()

    def _gradients(self) -> list[Tensor]:
        """What this rank holds of the gradients, for changes in place."""
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def _over_ranks(self, norm: Tensor) -> Tensor:
        """The norm of all gradients from that of this rank's; may communicate."""
        return norm

    def _precision(self) -> AbstractContextManager[Any]:
        return self._autocast() if self._autocast is not None else _NOTHING

    def _allows(self, norm: Tensor) -> bool:
        """Whether to update. On an accelerator the optimizer itself leaves the update out, without a wait for it."""
        if norm.device.type == "cpu":
            return math.isfinite(norm.item())
        return leave_to_optimizer(self.optimizer, norm) or math.isfinite(norm.item())


def leave_to_optimizer(optimizer: torch.optim.Optimizer, norm: Tensor) -> bool:
    """Tell a fused optimizer to leave its next update out where the norm is not finite; False if it cannot be told."""
    able = bool(getattr(optimizer, "_step_supports_amp_scaling", False))
    if able:
        optimizer.found_inf = (~torch.isfinite(norm)).float()  # type: ignore[attr-defined]  # made for loss scaling
    return able


class _Nothing(AbstractContextManager[None]):
    def __exit__(self, *exc_info: object) -> None:
        pass


_NOTHING = _Nothing()


def _room(parameter: Tensor, form: Stored, on_device: bool) -> Any:
    """Memory for one entry of a parameter's optimizer state: in the parameter's own layout, or a small plain tensor."""
    if form is None:
        return None
    shape, dtype = form
    if shape == parameter.shape:
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    # Step counts: torch keeps them with the parameter only where a kernel on the device reads them.
    return torch.empty(shape, dtype=dtype, device=parameter.device if on_device else "cpu")
