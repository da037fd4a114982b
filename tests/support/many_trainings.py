"""Several trainings in one gang, since a gang takes seconds to start: `python -m support.many_trainings FILE`.

`FILE` holds job documents by name. Rank 0 writes the loss of each step of each training beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from shunter_trainer.data.build import build_data
from shunter_trainer.data.geometry import cut, total_steps
from shunter_trainer.data.stream import Seat, open_stream
from shunter_trainer.document import read_task
from shunter_trainer.gang import Gang, join, leave
from shunter_trainer.models.build import build_model
from shunter_trainer.models.objective import Objective
from shunter_trainer.optim.optimizers import optimizer_maker
from shunter_trainer.optim.schedules import schedule_factor
from shunter_trainer.places import Places
from shunter_trainer.seeds import step_seeder
from shunter_trainer.strategies import strategy_for
from shunter_trainer.strategies.base import Parts, Strategy
from support.ranks import Ranks

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class ManyTrainings(Ranks):
    """The gang, as a test sees it."""

    program = "support.many_trainings"
    ends_within_s = 280.0

    def __init__(self, folder: Path, documents: Mapping[str, Any], world_size: int) -> None:
        super().__init__(folder, documents, world_size, PYTHONPATH=str(Path(__file__).parents[1]))

    def losses(self) -> dict[str, list[float]]:
        """The losses of each training by its name, when all have ended."""
        codes = self.end()
        assert not any(codes), self.stderr(next(rank for rank, code in enumerate(codes) if code))
        found: dict[str, list[float]] = json.loads((self.folder / "losses.json").read_text())
        return found


def losses_of(document: Path, gang: Gang, places: Places) -> list[float]:
    """Train on this rank; the mean loss of each step over the ranks."""
    task = read_task(document)
    workload = task.workload
    data, built, geometry = build_data(workload, places), build_model(workload, places), cut(workload, gang.world_size)
    strategy: Strategy = strategy_for(task.strategy)
    strategy.prepare(
        Parts(
            module=built.module,
            objective=Objective(workload.loss, built.accepts, built.own_labels, built.classifies),
            make_optimizer=optimizer_maker(workload.optimizer),
            keeps_groups=False,
            compute_dtype=_DTYPES[workload.dtypes.compute],
            reduce_dtype=_DTYPES[workload.dtypes.reduce],
            gang=gang,
            fill=built.fill,
            micro_size=geometry.micro_size,
            accumulation=geometry.accumulation,
        )
    )
    stream = open_stream(data.train, Seat(geometry, gang.rank, gang.device, workload.seed, 0), 0)
    steps = total_steps(workload, None)
    factor, seed_step = schedule_factor(workload.schedule, steps), step_seeder(workload.seed, gang)
    losses = []
    for step in range(1, steps + 1):
        seed_step(step)
        (micro,) = stream.next_step()
        loss = strategy.compute(micro.batch)
        strategy.backward(loss)
        strategy.step(factor(step) if factor else None, workload.gradient_clip_norm, measured=False)
        total = loss.detach().clone()
        torch.distributed.all_reduce(total)
        losses.append(total.item() / gang.world_size)
    return losses


def main() -> None:
    """On each rank."""
    places, gang = Places.from_environment(), Gang.from_environment()
    join(gang)
    found = {}
    for name, document in json.loads(places.document.read_text()).items():
        file = places.document.with_name(f"{name}-{gang.rank}.json")
        file.write_text(json.dumps(document))
        found[name] = losses_of(file, gang, places)
    if gang.is_main:
        (places.document.parent / "losses.json").write_text(json.dumps(found))
    leave(gang)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
