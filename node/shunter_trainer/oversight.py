"""All that watches over a training and measures it, for the loop to ask at its looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from shunter_schemas.oversight import EarlyStopping, Guards
from torch import nn

from shunter_trainer.gang import Gang
from shunter_trainer.guards.finite import FiniteGuard
from shunter_trainer.guards.plateau import PlateauGuard
from shunter_trainer.guards.spikes import SpikeGuard
from shunter_trainer.measuring.phases import Phases
from shunter_trainer.measuring.tracer import Tracer
from shunter_trainer.measuring.utilisation import peak_flops, peak_memory_gib
from shunter_trainer.models.dimensions import Dimensions, flops_per_token
from shunter_trainer.pace import Notes
from shunter_trainer.strategies.base import Strategy

_MOST_WARNINGS = 20
"""A training that spikes all the time has said so; the count goes on in the metrics."""


@dataclass(frozen=True, slots=True)
class Work:
    """What MFU is made of."""

    flops_per_token: float
    peak_flops: float
    """Of all ranks together."""


def work_of(module: nn.Module, config: Mapping[str, Any], tokens_per_sample: int, gang: Gang) -> Work | None:
    """Before the strategy takes the module; None where the model is no language model or the hardware is not known.

    Raises: UserFault when `SHUNTER_PEAK_TFLOPS` is no positive number.
    """
    dimensions, peak = Dimensions.of(config), peak_flops(gang.device)
    if dimensions is None or peak is None or not tokens_per_sample:
        return None
    return Work(flops_per_token(module, dimensions, tokens_per_sample), peak * gang.world_size)


class Oversight:
    """The guards and measurements of one rank."""

    def __init__(
        self,
        device: torch.device,
        guards: Guards,
        early_stopping: EarlyStopping | None = None,
        work: Work | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._device = device
        self._finite = FiniteGuard(guards.non_finite_steps)
        self._spikes = SpikeGuard(guards.loss_spikes)
        self._plateau = PlateauGuard(early_stopping) if early_stopping is not None else None
        self._work = work
        self._warnings = 0
        self._told: dict[str, float] = {}
        self.phases = Phases(device)
        self.tracer = tracer

    @property
    def healthy(self) -> bool:
        """Whether the newest step was good; nothing else is worth a checkpoint."""
        return self._finite.healthy

    def tell(self, name: str, value: float) -> None:
        """Something that goes with the next values, once."""
        self._told[name] = value

    def check(self, notes: Notes, strategy: Strategy) -> str | None:
        """Look at the steps since the last look; what is worth a warning.

        Raises: NonFinite or LossSpiked, on all ranks at the same step, when the training is to end.
        """
        first_step = notes.step - len(notes.losses) + 1
        self._finite.check(first_step, notes.losses, notes.norms, strategy.loss_scale)
        warning = self._spikes.check(first_step, notes.losses)
        self._warnings += warning is not None
        return warning if self._warnings <= _MOST_WARNINGS else None

    def measured(self, strategy: Strategy, tokens_per_s: float | None) -> dict[str, float]:
        """Values beside the loss and the speed; asks for the next step to be measured."""
        values, self._told = {**self.phases.read(), **self._told}, {}
        self.phases.want()
        values["peak_memory_gib"] = peak_memory_gib(self._device)
        if (communication_s := strategy.communication_s()) is not None:
            values["communication_time_s"] = communication_s
        if (scale := strategy.loss_scale) is not None:
            values["loss_scale"] = scale
        if self._spikes.count:
            values["loss_spikes"] = float(self._spikes.count)
        if self._work is not None and tokens_per_s is not None:
            values["mfu"] = tokens_per_s * self._work.flops_per_token / self._work.peak_flops
        return values

    def ending(self, step: int, evaluated: Mapping[str, float]) -> str | None:
        """After an evaluation: why the training ends early, with success; None: it goes on."""
        return self._plateau.check(step, evaluated) if self._plateau is not None and evaluated else None

    def memory(self) -> dict[str, float]:
        """What a checkpoint has to keep of it."""
        return self._plateau.memory() if self._plateau is not None else {}

    def recall(self, memory: Mapping[str, float]) -> None:
        """Go on from what a checkpoint kept."""
        if self._plateau is not None:
            self._plateau.recall(memory)
