"""A micro-batch that the plan chose, tried before the training: made smaller until one fits on every rank.

A trial is one forward and backward pass over a real micro-batch, with the optimizer's state to come held free beside
it; gradients, buffers and memory are as before afterwards. It needs a strategy whose rank can do that alone
(`Strategy.rehearsal`): in a pass that gathers parameters, a rank without memory would leave the others waiting. There
the first step is the trial, and the service begins again with a smaller size.

Ranks agree on the smallest size that any of them can take, and the step is cut into as many more micro-batches: it
takes the same samples in the same order, so that the training is the same.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from shunter_schemas.batching import BatchPlan, with_micro_size
from shunter_schemas.optimization import Sgd

from shunter_trainer.data.geometry import Geometry
from shunter_trainer.data.samples import Samples, Unindexed
from shunter_trainer.data.stream import Seat, open_stream
from shunter_trainer.failures import is_out_of_memory
from shunter_trainer.gang import Gang
from shunter_trainer.measuring.utilisation import peak_memory_gib
from shunter_trainer.strategies.base import Rehearsal, Strategy

_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
_SPARE = {"cuda": 0.03, "cpu": 0.10}
"""Of the memory that there is, what a trial leaves free: for the next step's data, saving, and what allocators hold."""


@dataclass(slots=True)
class Trial:
    """What was tried, and what came of it."""

    geometry: Geometry
    """The one to train with."""
    asked: int
    """The micro-batch that the plan chose."""
    tried: list[int] = field(default_factory=list)
    """Sizes, the last of which is taken. Empty: nothing was tried."""
    fits: bool = True
    """False: even a single sample ran out of memory."""
    peak_gib: float | None = None
    """Of this rank in the pass that fitted, on a GPU."""

    @property
    def report(self) -> dict[str, Any]:
        """For the job's history."""
        size, times = self.geometry.micro_size, self.geometry.accumulation
        told = f"{size} at once fit, {times} times a step" if times > 1 else f"{size} at once fit"
        if not self.fits:
            told = "even a single sample runs out of memory"
        elif size < self.asked:
            told += f"; the planned {self.asked} ran out of memory"
        peak = {} if self.peak_gib is None else {"peak_memory_gib": round(self.peak_gib, 3)}
        return {
            "micro_size": size,
            "accumulation": times,
            "planned": self.asked,
            "tried": list(self.tried),
            "message": told,
            **peak,
        }


def try_micro_size(
    strategy: Strategy, samples: Samples | Unindexed, geometry: Geometry, gang: Gang, optimizer: Any
) -> Trial:
    """Try the size, and smaller ones until one fits. Every rank calls it, before anything is resumed; communicates.

    Args:
        optimizer: the document's, whose state is still to be made.
    """
    trial = Trial(geometry, geometry.micro_size)
    rehearsal = strategy.rehearsal()
    if rehearsal is None or isinstance(samples, Unindexed) or not _all_agree(gang, is_limited(gang.device)):
        return trial
    held_bytes = _state_to_come(rehearsal, optimizer) + _spare_bytes(gang.device)
    with _unchanged(rehearsal, gang.device):
        while True:
            fits = _fits(rehearsal, _a_batch(samples, trial.geometry, gang), held_bytes)
            trial.tried.append(trial.geometry.micro_size)
            if _all_agree(gang, fits):
                trial.peak_gib = peak_memory_gib(gang.device) if gang.device.type == "cuda" else None
                return trial
            if trial.geometry.micro_size == 1:
                trial.fits = False  # the training itself will say with what
                return trial
            trial.geometry = _smaller(trial.geometry)


def is_limited(device: torch.device) -> bool:
    """Whether memory that runs out is an error that a rank survives: of a GPU, or under a limit of the process."""
    return device.type == "cuda" or any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in _LIMITS)


def _smaller(geometry: Geometry) -> Geometry:
    plan = BatchPlan(geometry.micro_size, geometry.accumulation, geometry.world_size)
    return replace(geometry, micro_size=with_micro_size(plan, geometry.micro_size // 2).micro_size)


def _a_batch(samples: Samples, geometry: Geometry, gang: Gang) -> Any:
    """A micro-batch of this rank, of this size; read apart from the training's own stream."""
    stream = open_stream(samples, Seat(geometry, gang.rank, gang.device, 0, 0), 0)
    try:
        return stream.next_step()[0].batch
    finally:
        stream.close()


def _fits(rehearsal: Rehearsal, batch: Any, room_bytes: int) -> bool:
    device = rehearsal.device
    try:
        held = torch.empty(room_bytes, dtype=torch.uint8, device=device)
        rehearsal.run(batch)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        del held
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        error.__traceback__ = None  # whose frames hold what the pass had allocated
        return False
    finally:
        rehearsal.forget()
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return True


def _state_to_come(rehearsal: Rehearsal, optimizer: Any) -> int:
    """Bytes of the optimizer's state, less gradients that are there twice in a rehearsal only."""
    moments = 2
    if isinstance(optimizer, Sgd):
        moments = 1 if optimizer.momentum else 0
    return max(0, moments * rehearsal.trained_bytes - rehearsal.bucket_bytes)


def _spare_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        total: int = torch.cuda.get_device_properties(device).total_memory
        return int(_SPARE["cuda"] * total)
    limits = [limit for limit, _ in map(resource.getrlimit, _LIMITS) if limit != resource.RLIM_INFINITY]
    return int(_SPARE["cpu"] * min(limits, default=0))


def _all_agree(gang: Gang, verdict: bool) -> bool:
    if gang.world_size == 1:
        return verdict
    votes = torch.tensor([float(verdict)], device=gang.device)
    dist.all_reduce(votes, op=dist.ReduceOp.MIN)
    return bool(votes.item() > 0)


@contextmanager
def _unchanged(rehearsal: Rehearsal, device: torch.device) -> Iterator[None]:
    """Buffers that a forward pass moves on (running means) are as before; so is the peak that was measured."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in rehearsal.buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
