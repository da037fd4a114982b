"""How a global batch is cut into ranks and micro-batches, and how many steps a training takes."""

from __future__ import annotations

from dataclasses import dataclass

from shunter_schemas import batching
from shunter_schemas.training import TrainingWorkload

from shunter_trainer.failures import UserFault


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes in samples."""

    global_size: int
    micro_size: int
    world_size: int

    @property
    def rank_size(self) -> int:
        """Samples of one step on one rank."""
        return self.global_size // self.world_size

    @property
    def accumulation(self) -> int:
        """Micro-batches of one step on one rank."""
        return self.rank_size // self.micro_size


def cut(workload: TrainingWorkload, world_size: int) -> Geometry:
    """Raises: UserFault when the sizes do not divide."""
    try:
        plan = batching.batch_plan(workload, world_size)
    except ValueError as error:
        raise UserFault("/workload/batch", str(error)) from None
    return Geometry(workload.batch.global_size, plan.micro_size, world_size)


def total_steps(workload: TrainingWorkload, samples: int | None) -> int:
    """Optimizer steps of the whole training. `samples` is None for data without a length.

    Raises: UserFault when the duration counts what the data does not have.
    """
    steps = batching.total_steps(workload, samples)
    if steps is None:
        raise UserFault("/workload/duration", "the data has no length or no tokens to count; give steps")
    return steps
