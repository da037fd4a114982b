"""What strategies ask of the shapes of parameters."""

from __future__ import annotations

from torch import nn

from shunter_trainer.failures import UserFault


def check_axes(module: nn.Module) -> None:
    """Raises: UserFault when a parameter is a single number: neither `fully_shard` nor DeepSpeed's engine takes it."""
    for name, parameter in module.named_parameters():
        if parameter.ndim == 0:
            raise UserFault(
                "/workload/model",
                f"{name} is a single number without an axis, which only ddp takes; give it the shape (1,) in the "
                "model, or use strategy ddp",
            )
