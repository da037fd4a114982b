"""When the ranks compare notes, and what they agree on.

Nothing but the gradients crosses the wire in an ordinary step. At a *look*, one small all-reduce carries the losses of
all steps since the last look, and the wishes of each rank (stop; save now): so every rank learns the same things at the
same step, and acts on them at the same step. Looks come about once a second, at round step numbers; with fast steps
the answer is read one step later, when it has long arrived.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from shunter_trainer.gang import Gang

_LOOK_S = 1.0
_FAST_STEP_S = 0.05
_GRAINS: tuple[int, ...] = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 5))


@dataclass(frozen=True, slots=True)
class Notes:
    """What all ranks know after a look."""

    step: int
    losses: list[float]
    """Of the whole gang, one for each step up to and with `step`."""
    norms: list[float | None]
    """Global gradient norms of the same steps; None where it was not measured."""
    step_s: float
    """Seconds of a step on rank 0, on average since the last look."""
    stop: bool
    save: bool


class Pace:
    """The looks of one rank."""

    def __init__(self, gang: Gang, step: int, every_steps: int | None = None) -> None:
        """`every_steps` fixes the distance of looks; otherwise it follows the speed."""
        self._gang = gang
        self._every_steps = every_steps
        self._losses: list[Tensor] = []
        self._norms: list[Tensor | None] = []
        self._looked_at = step
        self._began = time.perf_counter()
        self._sent: tuple[int, Any, Tensor, list[Tensor | None]] | None = None
        self.next_look = step + 1
        """The first step is looked at right away, so that everybody sees that it works."""
        self.step_s: float | None = None

    @property
    def waiting(self) -> bool:
        """Whether a look was sent and not read."""
        return self._sent is not None

    @property
    def steps_are_slow(self) -> bool:
        """Whether reading a look at once costs nothing that could be noticed."""
        return self.step_s is None or self.step_s > _FAST_STEP_S

    def note(self, loss: Tensor, norm: Tensor | None) -> None:
        """One step of this rank: its share of the loss, and the global norm where it was measured."""
        self._losses.append(loss)
        self._norms.append(norm)

    def leave_out(self, seconds: float) -> None:
        """Time since the last look in which no step was worked on."""
        self._began += seconds

    def send(self, step: int, stop: bool, save: bool) -> None:
        """Start a look at this step; every rank does so at the same step."""
        now = time.perf_counter()
        step_s = (now - self._began) / max(step - self._looked_at, 1)
        wishes = [float(stop), float(save), step_s] if self._gang.is_main else [float(stop), 0.0, 0.0]
        losses = torch.stack(self._losses).float()
        message = torch.cat((torch.tensor(wishes, device=losses.device), losses))
        work = dist.all_reduce(message, async_op=True) if self._gang.world_size > 1 else None
        self._sent = (step, work, message, self._norms)
        self._losses, self._norms = [], []
        self._looked_at, self._began = step, now

    def read(self) -> Notes:
        """What the last look found; decides when the next one is."""
        assert self._sent is not None
        sent_at, work, message, norms = self._sent
        self._sent = None
        if work is not None:
            work.wait()
        stop, save, step_s, *losses = message.tolist()
        self.step_s = step_s
        grain = self._every_steps or _grain(step_s)
        self.next_look = (sent_at // grain + 1) * grain
        return Notes(
            step=sent_at,
            losses=[loss / self._gang.world_size for loss in losses],
            norms=_numbers(norms),
            step_s=step_s,
            stop=stop > 0,
            save=save > 0,
        )


def _numbers(norms: list[Tensor | None]) -> list[float | None]:
    measured = [norm for norm in norms if norm is not None]
    values = iter(torch.stack(measured).tolist() if measured else ())
    return [None if norm is None else next(values) for norm in norms]


def _grain(step_s: float) -> int:
    """The smallest round number of steps that take long enough."""
    return next((grain for grain in _GRAINS if grain * step_s >= _LOOK_S), _GRAINS[-1])
