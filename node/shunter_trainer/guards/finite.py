"""Losses and gradients must stay finite: a few bad steps in a row are left out, more end the training."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shunter_trainer.failures import NonFinite
from shunter_trainer.optim.loss_scale import LEAST

PATIENCE_STEPS = 5


class FiniteGuard:
    """Counts bad steps in a row. Every rank sees the same numbers, so all give up at the same step."""

    def __init__(self, patience_steps: int = PATIENCE_STEPS) -> None:
        self._patience_steps = patience_steps
        self._bad_in_a_row = 0

    @property
    def healthy(self) -> bool:
        """Whether the newest step was good; nothing else is worth a checkpoint."""
        return self._bad_in_a_row == 0

    def check(
        self,
        first_step: int,
        losses: Sequence[float],
        norms: Sequence[float | None],
        loss_scale: float | None = None,
    ) -> None:
        """Look at consecutive steps; a norm is None where it was not measured.

        Under a loss scale (fp16), gradients may overflow now and then: the scale falls, and only its fall below 1 is
        a fault.

        Raises: NonFinite after too many bad ones in a row.
        """
        if loss_scale is not None:
            if loss_scale < LEAST:
                raise NonFinite(_COLLAPSED.format(step=first_step + len(losses) - 1, scale=loss_scale))
            norms = [None] * len(losses)
        for offset, (loss, norm) in enumerate(zip(losses, norms, strict=True)):
            if math.isfinite(loss) and (norm is None or math.isfinite(norm)):
                self._bad_in_a_row = 0
                continue
            self._bad_in_a_row += 1
            if self._bad_in_a_row >= self._patience_steps:
                what = f"the loss is {loss}" if not math.isfinite(loss) else f"the norm of the gradients is {norm}"
                raise NonFinite(
                    f"At step {first_step + offset} {what}, and so in {self._bad_in_a_row} steps in a row. "
                    "Lower workload.optimizer.lr, lengthen the warm-up, set workload.gradient_clip_norm, "
                    "or look for bad samples."
                )


_COLLAPSED = (
    "At step {step} the loss scale of fp16 fell to {scale:g}: gradients overflow even unscaled. Use precision bf16 "
    "(weights that were trained in bf16 often do not fit into fp16), lower workload.optimizer.lr, or set "
    "workload.gradient_clip_norm."
)
