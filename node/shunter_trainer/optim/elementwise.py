"""Whether an optimizer moves each number by its own gradients alone, whatever tensor it stands in.

ZeRO lays parameters one after the other into flat tensors and gives each rank a part of them. SGD, Adam and their kin
do not notice. An optimizer that looks at a matrix as a whole, at its rows or its norm, would fail in its first step, or
train another way without a word.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter_trainer.optim.optimizers import MakeOptimizer

_SHAPE = (4, 6)
_STEPS = 3


def is_elementwise(make: MakeOptimizer) -> bool:
    """By trial: some steps on a small matrix, and on the same numbers in two flat parts, as ZeRO cuts them.

    True also of an optimizer that cannot be tried on such a matrix at all, here on the CPU.
    """
    numbers = torch.randn(1 + _STEPS, *_SHAPE, generator=torch.Generator().manual_seed(17))
    try:
        whole = _moved(make, numbers, parts=1)
    except Exception:  # the user's code, which may need what a small matrix is not
        return True
    try:
        cut = _moved(make, numbers, parts=2)
    except Exception:  # in whatever way it says that it wants matrices
        return False
    return torch.allclose(whole, cut, rtol=1e-4, atol=1e-6)


def _moved(make: MakeOptimizer, numbers: Tensor, parts: int) -> Tensor:
    """Where the first of these matrices is after steps along the others, as one flat tensor."""
    first, *gradients = (matrix.flatten().chunk(parts) if parts > 1 else (matrix,) for matrix in numbers)
    model = nn.Module()
    model.weight = nn.Parameter(numbers[0].clone())
    optimizer = make(model)
    own = [nn.Parameter(part.clone()) for part in first]
    for group in optimizer.param_groups:
        if any(parameter is model.weight for parameter in group["params"]):
            group["params"] = own
    if isinstance(optimizer, torch.optim.Adagrad):  # makes its state at once; DeepSpeed makes it anew too
        optimizer = torch.optim.Adagrad(optimizer.param_groups)
    for step in gradients:
        _step(optimizer, own, step)
    return torch.cat([parameter.detach().flatten() for parameter in own])


def _step(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    optimizer.step()
