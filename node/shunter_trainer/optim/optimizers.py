"""From `workload.optimizer` to a torch optimizer: one builder a kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from shunter_trainer.failures import UserFault
from shunter_trainer.targets import call_target

MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]
"""Called by the strategy once parameters have their final form (sharded, say)."""


def optimizer_maker(document: Any) -> MakeOptimizer:
    """How to make the optimizer of the document."""
    if document.kind == "python":
        return _python_maker(document)
    builder = _BUILDERS[document.kind]

    def make(model: nn.Module) -> torch.optim.Optimizer:
        groups = decay_groups(model, document.weight_decay)
        # Fused is the fastest kind on CPUs and GPUs (4 x here), but takes real floating-point parameters only.
        fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in trainable(model))
        return builder(document, groups, fused)

    return make


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that an optimizer gets."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices and larger decay; biases and the gains of norms (fewer than two axes) do not."""
    decayed = [parameter for parameter in trainable(model) if len(_shape(parameter)) >= 2]
    others = [parameter for parameter in trainable(model) if len(_shape(parameter)) < 2]
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _shape(parameter: nn.Parameter) -> torch.Size:
    # ZeRO 3 leaves an empty tensor in the parameter's place and its shape beside it.
    shape: torch.Size = getattr(parameter, "ds_shape", parameter.shape)
    return shape


def _adamw(document: Any, groups: Iterable[dict[str, Any]], fused: bool) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=document.lr, betas=document.betas, eps=document.eps, fused=fused)


def _sgd(document: Any, groups: Iterable[dict[str, Any]], fused: bool) -> torch.optim.Optimizer:
    if document.nesterov and not document.momentum:
        raise UserFault("/workload/optimizer/nesterov", "needs a momentum above 0")
    groups = list(groups)
    # torch has no fused SGD for parameters that are split over ranks (DTensors).
    fused = fused and not any(hasattr(parameter, "full_tensor") for group in groups for parameter in group["params"])
    return torch.optim.SGD(groups, lr=document.lr, momentum=document.momentum, nesterov=document.nesterov, fused=fused)


def _python_maker(document: Any) -> MakeOptimizer:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        made = call_target(document.target, document.arguments, "/workload/optimizer", trainable(model))
        if not isinstance(made, torch.optim.Optimizer):
            raise UserFault(
                "/workload/optimizer/target",
                f"{document.target} returned a {type(made).__name__}; it must return a torch.optim.Optimizer",
            )
        return made

    return make


_BUILDERS: dict[str, Callable[[Any, Iterable[dict[str, Any]], bool], torch.optim.Optimizer]] = {
    "adamw": _adamw,
    "sgd": _sgd,
}
