"""A factor on the loss that keeps small fp16 gradients from vanishing, found by trial as the training goes on.

A step whose gradients overflow is left out and halves the scale; 2,000 good steps in a row double it. What counts as
overflow is the norm of the reduced gradients, which is the same on every rank: so all ranks agree without a message.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

FIRST = 2.0**16
LEAST = 1.0
"""Gradients that overflow even unscaled have another cause than fp16's range of small numbers."""
GROWS_AFTER_STEPS = 2000

SCALE = "loss_scale"
GOOD_STEPS = "loss_scale_good_steps"
"""Names in what a strategy remembers."""

# The kernel of torch.amp.GradScaler; it works where the numbers lie, so no step waits for them.
_update_scale_ = torch._amp_update_scale_  # pyright: ignore[reportPrivateImportUsage]


class LossScale:
    """One rank's copy of the scale."""

    def __init__(self, device: torch.device) -> None:
        self._scale = torch.full((), FIRST, device=device)
        self._good_steps = torch.zeros((), dtype=torch.int32, device=device)

    @property
    def value(self) -> float:
        """The scale now. Waits for the device."""
        return self._scale.item()

    @property
    def inverse(self) -> Tensor:
        """What scaled gradients are multiplied by."""
        return self._scale.reciprocal()

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss to differentiate."""
        return loss * self._scale

    def update(self, norm: Tensor) -> None:
        """After a step: adapt to whether its gradients, whose norm this is, were finite."""
        overflowed = (~torch.isfinite(norm)).float()
        _update_scale_(self._scale, self._good_steps, overflowed, 2.0, 0.5, GROWS_AFTER_STEPS)

    def memory(self) -> dict[str, float]:
        """What a checkpoint has to keep."""
        return {SCALE: self.value, GOOD_STEPS: float(self._good_steps.item())}

    def recall(self, memory: Mapping[str, float]) -> None:
        """Go on from what a checkpoint kept; from the first scale where it kept none (another precision)."""
        self._scale.fill_(memory.get(SCALE, FIRST))
        self._good_steps.fill_(int(memory.get(GOOD_STEPS, 0)))
