"""The trainer's own loop for benchmarks: all of it but checkpoints, for as many steps as are asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from bare_loops import STRATEGIES, MakeOptimizer
from shunter_schemas.oversight import Guards
from shunter_schemas.training import TrainingCheckpoint
from shunter_trainer.checkpoint.save import Position, Saver
from shunter_trainer.data.geometry import Geometry
from shunter_trainer.data.samples import Samples
from shunter_trainer.data.stream import Seat, open_stream
from shunter_trainer.gang import Gang
from shunter_trainer.guards.hang import HangWatchdog
from shunter_trainer.guards.stop import Wishes
from shunter_trainer.loop import Course, Crew, Loop
from shunter_trainer.models.materialise import Filler, keep_values
from shunter_trainer.models.objective import Objective
from shunter_trainer.oversight import Oversight
from shunter_trainer.pace import Pace
from shunter_trainer.reports import Reports
from shunter_trainer.seeds import step_seeder
from shunter_trainer.strategies import strategy_for
from shunter_trainer.strategies.base import Parts
from torch import nn

SEED = 17


class NoSaver:
    """Checkpoints are not what is measured here."""

    blocked_s = 0.0

    def save(self, *args: Any) -> None:
        """Nothing."""

    def wait(self) -> None:
        """Nothing."""

    def salvage(self, within_s: float) -> None:
        """Nothing."""


def our_loop(
    name: str,
    module: nn.Module,
    make_optimizer: MakeOptimizer,
    samples: Samples,
    gang: Gang,
    global_size: int,
    metrics: Path,
    *,
    fill: Filler = keep_values,
    objective: Objective | None = None,
    factor: Callable[[int], float],
) -> Callable[..., None]:
    """`run(steps, clip_norm, mark)` trains some steps more, and calls `mark` once in each. Every rank calls it."""
    micro_size = global_size // gang.world_size
    strategy = strategy_for(STRATEGIES[name])
    parts = Parts(
        module=module,
        objective=objective or Objective(None, None, own_labels=False),
        make_optimizer=make_optimizer,
        keeps_groups=False,
        compute_dtype=torch.float32,
        reduce_dtype=torch.float32,
        gang=gang,
        fill=fill,
        micro_size=micro_size,
        accumulation=1,
    )
    strategy.prepare(parts)
    reports = Reports(metrics, gang.is_main)
    geometry = Geometry(global_size, micro_size, gang.world_size)
    stream = open_stream(samples, Seat(geometry, gang.rank, gang.device, SEED, 0), 0)
    seed_step, watchdog = step_seeder(SEED, gang), HangWatchdog(reports.failure)

    def run(steps: int, clip_norm: float | None, mark: Callable[[], None] | None = None) -> None:
        def seed_and_mark(step: int) -> None:
            seed_step(step)
            marked()

        marked = mark or (lambda: None)
        seed = seed_step if mark is None else seed_and_mark
        course = Course(steps, global_size, samples.tokens_per_sample, factor, clip_norm, TrainingCheckpoint(), None)
        oversight = Oversight(gang.device, Guards())
        saver, wishes, pace = cast(Saver, NoSaver()), Wishes(), Pace(gang, 0)
        crew = Crew(strategy, stream, None, saver, reports, watchdog, wishes, pace, oversight, seed)
        Loop(course, crew, Position(0, 0, "", gang.world_size, name)).run()

    return run
