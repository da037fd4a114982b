"""Full activation checkpointing: keep only what enters each block, and compute the rest again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from shunter_trainer.failures import UserFault


def recompute_blocks(model: nn.Module) -> None:
    """Make every block of the model recompute. Names of modules and parameters stay as they are.

    Blocks are the elements of the outermost `nn.ModuleList` and `nn.Sequential` containers.

    Raises: UserFault when the model has none.
    """
    from torch.utils.checkpoint import checkpoint

    blocks = _blocks(model)
    if not blocks:
        raise UserFault(
            "/workload/activation_checkpointing",
            "the model holds no nn.ModuleList or nn.Sequential whose elements could be recomputed",
        )
    for block in blocks:
        block.forward = _recomputed(block.forward, checkpoint)


def _recomputed(forward: Callable[..., Any], checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return recomputed


def _blocks(module: nn.Module) -> list[nn.Module]:
    found: list[nn.Module] = []
    for child in module.children():
        if isinstance(child, nn.ModuleList | nn.Sequential):
            found.extend(child.children())
        else:
            found.extend(_blocks(child))
    return found
