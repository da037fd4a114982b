"""Host overhead of the trainer's loop: a null model in one process, our loop against a bare one, interleaved.

    python benchmarks/trainer/overhead.py [--steps 2000] [--rounds 9]

Both loops use the same model, optimizer kind and data; what differs is everything the trainer adds: sample order,
batches, seeds, schedule, looks, metrics, the hang watchdog. Prints microseconds a step and the difference, by rounds.
CPU time of the one thread that trains is counted, so that other load on the machine disturbs little.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from shunter_schemas.strategies import DdpStrategy
from shunter_schemas.training import TrainingCheckpoint
from shunter_trainer import deferred_dynamo
from shunter_trainer.checkpoint.save import Position, Saver
from shunter_trainer.data.geometry import Geometry
from shunter_trainer.data.samples import TensorPool
from shunter_trainer.data.stream import Seat, open_stream
from shunter_trainer.gang import Gang
from shunter_trainer.guards.hang import HangWatchdog
from shunter_trainer.guards.stop import Wishes
from shunter_trainer.loop import Course, Crew, Loop
from shunter_trainer.models.objective import Objective
from shunter_trainer.pace import Pace
from shunter_trainer.reports import Reports
from shunter_trainer.seeds import step_seeder
from shunter_trainer.strategies import strategy_for
from shunter_trainer.strategies.base import Parts
from torch import Tensor, nn

BATCH = 8
CPU = torch.device("cpu")
ALONE = Gang(0, 1, 0, 1, 0, 1, CPU)


class Null(nn.Module):
    """As little work as a model can be."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """The loss of a batch."""
        return {"loss": self.layer(x).square().mean()}


class NoSaver:
    """Checkpoints are not what is measured here."""

    blocked_s = 0.0

    def save(self, *args: Any) -> None:
        """Nothing."""

    def wait(self) -> None:
        """Nothing."""


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of both loops."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)


def bare(steps: int, clip_norm: float | None) -> float:
    """Seconds of a loop as one writes it by hand."""
    model, pool = Null(), torch.randn(1024, 4)
    optimizer = adamw(model)
    batches = torch.split(pool, BATCH)
    began = time.thread_time()
    for step in range(steps):
        loss = model(x=batches[step % len(batches)])["loss"]
        loss.backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        optimizer.zero_grad()
    return time.thread_time() - began


def ours(steps: int, clip_norm: float | None, metrics: Path) -> float:
    """Seconds of the trainer's loop over the same."""
    samples = TensorPool({"x": torch.randn(1024, 4)}, 1024, 0)
    strategy = strategy_for(DdpStrategy(kind="ddp"))
    strategy.prepare(Parts(Null(), Objective(None, None, False), adamw, False, torch.float32, torch.float32, ALONE))
    reports = Reports(metrics, is_main=True)
    course = Course(steps, BATCH, 0, lambda step: 1.0, clip_norm, TrainingCheckpoint(), None)
    crew = Crew(
        strategy=strategy,
        stream=open_stream(samples, Seat(Geometry(BATCH, BATCH, 1), 0, CPU, 17, 0), 0),
        evaluator=None,
        saver=cast(Saver, NoSaver()),
        reports=reports,
        watchdog=HangWatchdog(reports.failure),
        wishes=Wishes(),
        pace=Pace(ALONE, 0),
        seed_step=step_seeder(17, ALONE),
    )
    loop = Loop(course, crew, Position(0, 0, "", 1, "ddp"))
    began = time.thread_time()
    loop.run()
    return time.thread_time() - began


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    deferred_dynamo.defer()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        out, sys.stdout = sys.stdout, (Path(folder) / "stdout").open("w")
        rows = []
        for clip_norm in (None, 1.0):
            loops = [partial(bare, options.steps, clip_norm), partial(ours, options.steps, clip_norm, metrics)]
            for loop in loops:
                loop()
            gc.freeze()
            rounds = [[loop() / options.steps * 1e6 for loop in loops] for _ in range(options.rounds)]
            rows.append((clip_norm, rounds))
        sys.stdout = out
    for clip_norm, rounds in rows:
        bares, owns = zip(*rounds, strict=True)
        differences = sorted(own - base for base, own in rounds)
        print(
            f"{'with clipping' if clip_norm else 'no clipping  '}  bare {statistics.median(bares):6.1f} us/step"
            f"  ours {statistics.median(owns):6.1f}  overhead {statistics.median(differences):+6.1f}"
            f"  (rounds {differences[0]:+.1f} to {differences[-1]:+.1f})"
        )


if __name__ == "__main__":
    main()
