"""What follows from the batch sizes and the duration of a training."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final, NamedTuple

from shunter_schemas.training import Batch, TrainingWorkload

PLANNED: Final = "planned"
"""Of a document that nodes get: JSON pointers of what was `auto` and the plan chose."""
MICRO_SIZE: Final = "/workload/batch/micro_size"


class BatchPlan(NamedTuple):
    """How one optimizer step is cut: `micro_size * accumulation * world_size` is the global size."""

    micro_size: int
    accumulation: int
    world_size: int


def batch_plan(workload: TrainingWorkload, world_size: int) -> BatchPlan:
    """The batch plan on this number of ranks; a micro-batch of `auto` is all that a rank has to do in one step.

    Raises:
        ValueError: the sizes do not divide; `shunter_schemas.checks` refuses such documents with pointers.
    """
    per_rank, rest = divmod(workload.batch.global_size, world_size)
    micro_size = per_rank if workload.batch.micro_size == "auto" else workload.batch.micro_size
    if rest or not per_rank or per_rank % micro_size:
        raise ValueError(f"{workload.batch} does not divide over {world_size} ranks")
    return BatchPlan(micro_size, per_rank // micro_size, world_size)


def with_micro_size(batch: BatchPlan, most: int) -> BatchPlan:
    """The same step in micro-batches of at most `most` samples: the largest that divide a rank's share exactly."""
    per_rank = batch.micro_size * batch.accumulation
    micro_size = next(size for size in range(max(1, min(most, per_rank)), 0, -1) if per_rank % size == 0)
    return BatchPlan(micro_size, per_rank // micro_size, batch.world_size)


def dividing_worlds(batch: Batch, least: int, most: int) -> list[int]:
    """The numbers of ranks from `least` to `most` over which the batch divides, the smallest first."""
    micro = 1 if batch.micro_size == "auto" else batch.micro_size
    samples, rest = divmod(batch.global_size, micro)
    return [] if rest else [size for size in range(least, min(most, samples) + 1) if samples % size == 0]


def total_steps(workload: TrainingWorkload, samples: int | None = None) -> int | None:
    """Optimizer steps of the whole training, or None where it counts epochs and `samples` of one epoch is not known."""
    duration, global_size = workload.duration, workload.batch.global_size
    if duration.steps is not None:
        return duration.steps
    if duration.tokens is not None and workload.sequence_length is not None:
        return math.ceil(duration.tokens / (global_size * workload.sequence_length))
    if duration.epochs is not None and samples is not None:
        exact = Fraction(str(duration.epochs)) * samples / global_size  # 0.1 * 30 is 3, not 3.0000000000000004
        return max(1, math.ceil(exact))
    return None
