"""Batch norms whose weights are in another type than their running means.

Strategies that split parameters gather them in the type of the computation, bf16 say, while buffers stay as they are:
means in 16 bits would lose what each step adds. Torch takes such input, but asks for weights in the type of the means.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm


def let_batch_norms_mix(model: nn.Module) -> None:
    """Have torch's own batch norms bring their weights into the type of their running means."""
    for module in model.modules():
        if _is_torchs_own(module):
            module.forward = partial(_forward, module)


def _is_torchs_own(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) and type(module).forward is _BatchNorm.forward


def _forward(norm: Any, x: Tensor) -> Tensor:
    norm._check_input_dim(x)
    means, variances = norm.running_mean, norm.running_var
    if means is None or variances is None:
        return F.batch_norm(x, None, None, norm.weight, norm.bias, True, 0.0, norm.eps)
    weight, bias = (None if own is None else own.to(means.dtype) for own in (norm.weight, norm.bias))
    share = norm.momentum
    if norm.training and norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    if share is None:  # of all batches so far, each counts the same
        share = 1.0 / float(norm.num_batches_tracked or 1)
    return F.batch_norm(x, means, variances, weight, bias, norm.training, share, norm.eps)
