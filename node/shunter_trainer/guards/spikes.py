"""Losses far above those before them: told, counted, and, where the document asks for it, the end of the training."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import median

from shunter_schemas.oversight import LossSpikes

from shunter_trainer.failures import LossSpiked

_NORMAL = 1.4826
"""The standard deviation of a normal distribution as a multiple of its median absolute deviation."""
_LEAST_SHARE = 0.01
"""Losses that hardly move at all would otherwise spike at every breath."""


class SpikeGuard:
    """Every rank sees the same losses, so all of them come to the same result at the same step."""

    def __init__(self, document: LossSpikes) -> None:
        self._document = document
        self._window: deque[float] = deque(maxlen=document.window_steps)
        self._spiking = False
        self.count = 0
        """Steps so far whose loss was a spike."""

    def check(self, first_step: int, losses: Sequence[float]) -> str | None:
        """Look at the losses of consecutive steps; what to tell where a spike begins among them.

        Raises: LossSpiked where the document says `stop`.
        """
        document, window = self._document, self._window
        if document.action == "ignore":
            return None
        told = None
        if len(window) == document.window_steps and (limit := self._limit()) < max(losses):
            spikes = [(step, loss) for step, loss in enumerate(losses, first_step) if limit < loss < math.inf]
            self.count += len(spikes)
            told = None if self._spiking or not spikes else self._message(*spikes[0], limit)
            if told and document.action == "stop":
                raise LossSpiked(f"{told} (workload.guards.loss_spikes.action is stop)")
            self._spiking = bool(spikes)
        else:
            self._spiking = False
        window.extend(loss for loss in losses[-document.window_steps :] if math.isfinite(loss))
        return told

    def _limit(self) -> float:
        centre = median(self._window)
        deviation = _NORMAL * median(abs(loss - centre) for loss in self._window)
        return centre + self._document.deviations * max(deviation, _LEAST_SHARE * abs(centre), 1e-12)

    def _message(self, step: int, loss: float, limit: float) -> str:
        return (
            f"At step {step} the loss jumped to {loss:.4g}; over the {self._document.window_steps} steps before, its "
            f"median was {median(self._window):.4g}, and up to {limit:.4g} is usual."
        )
