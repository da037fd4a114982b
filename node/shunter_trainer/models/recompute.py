"""Activation checkpointing: keep only a part of what each block makes, and compute the rest again in the backward pass.

`full` keeps what enters a block. `selective` also keeps the results of matrix products, convolutions and attention,
which take most of a block's time, and computes again what is cheap: norms, activations, rotations, sums.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from shunter_trainer.failures import UserFault

_KEPT = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "linear",
    "convolution",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable",
)
"""Operations of `torch.ops.aten` whose results `selective` keeps."""


def recompute_blocks(model: nn.Module, kind: str) -> None:
    """Make every block of the model recompute, by `full` or `selective`. Modules and parameters keep their names.

    Raises: UserFault when the model has no blocks.
    """
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    run: Callable[..., Any] = partial(checkpoint, use_reentrant=False)
    if kind == "selective":
        kept: list[Any] = [getattr(torch.ops.aten, name).default for name in _KEPT if hasattr(torch.ops.aten, name)]
        run = partial(run, context_fn=partial(create_selective_checkpoint_contexts, kept))
    found = blocks(model)
    if not found:
        raise UserFault(
            "/workload/activation_checkpointing",
            "the model holds no nn.ModuleList or nn.Sequential whose elements could be recomputed",
        )
    for block in found:
        block.forward = _recomputed(block.forward, run)


def blocks(module: nn.Module) -> list[nn.Module]:
    """The elements of the outermost `nn.ModuleList` and `nn.Sequential` containers."""
    found: list[nn.Module] = []
    for child in module.children():
        if isinstance(child, nn.ModuleList | nn.Sequential):
            found.extend(child.children())
        else:
            found.extend(blocks(child))
    return found


def _recomputed(forward: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        # In an evaluation there is no backward pass to compute anything again for.
        return run(forward, *args, **kwargs) if torch.is_grad_enabled() else forward(*args, **kwargs)

    return recomputed
