"""Host overhead of the trainer's loop: a null model in one process, our loop against a bare one, interleaved.

    python benchmarks/trainer/overhead.py [--strategy ddp | all] [--steps 2000] [--rounds 9]

Both loops use the same strategy, model, optimizer kind and data; what differs is everything the trainer adds: sample
order, batches, seeds, schedule, looks, metrics, guards, the step's phases, the hang watchdog. Prints microseconds a
step and the difference, by rounds. CPU time of the one thread that trains is counted, so that other load on the machine
disturbs little.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
from bare_loops import STRATEGIES, Step, bare_step
from our_loop import our_loop
from shunter_trainer import deferred_dynamo
from shunter_trainer.data.samples import TensorPool
from shunter_trainer.gang import Gang, join
from torch import Tensor, nn

BATCH = 8
LR = 1e-3
ALONE = Gang(0, 1, 0, 1, 0, 1, torch.device("cpu"))


class Null(nn.Module):
    """As little work as a model can be."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """The loss of a batch."""
        return {"loss": self.layer(x).square().mean()}


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of both loops."""
    return torch.optim.AdamW(model.parameters(), lr=LR, fused=True)


def by_hand(step: Step, batches: tuple[Tensor, ...], clip_norm: float | None, steps: int) -> None:
    """A loop as one writes it."""
    for number in range(steps):
        step({"x": batches[number % len(batches)]}, clip_norm, LR)


def measure(name: str, steps: int, rounds: int, metrics: Path) -> None:
    """One line for each kind of clipping."""
    pool = torch.randn(1024, 4)
    batches = torch.split(pool, BATCH)
    samples = TensorPool({"x": pool}, 1024, 0)
    for clip_norm in (None, 1.0):
        bare = partial(by_hand, bare_step(name, Null(), adamw, ALONE, BATCH), batches, clip_norm)
        ours = our_loop(name, Null(), adamw, samples, ALONE, BATCH, metrics, factor=lambda step: 1.0)
        loops: list[Callable[[int], None]] = [bare, clipped(ours, clip_norm)]
        for loop in loops:
            loop(steps)
        gc.freeze()
        found = [[_microseconds(loop, steps) for loop in loops] for _ in range(rounds)]
        bares, owns = zip(*found, strict=True)
        differences = sorted(own - base for base, own in found)
        clipping = "with clipping" if clip_norm else "no clipping  "
        print(
            f"{name:7} {clipping}  bare {statistics.median(bares):7.1f} us/step"
            f"  ours {statistics.median(owns):7.1f}  overhead {statistics.median(differences):+6.1f}"
            f"  (rounds {differences[0]:+.1f} to {differences[-1]:+.1f})",
            file=sys.stderr,
            flush=True,
        )


def clipped(loop: Callable[[int, float | None], None], clip_norm: float | None) -> Callable[[int], None]:
    """The loop as a function of the number of steps alone."""
    return lambda steps: loop(steps, clip_norm)


def _microseconds(loop: Callable[[int], None], steps: int) -> float:
    gc.collect()
    began = time.thread_time()
    loop(steps)
    return (time.thread_time() - began) / steps * 1e6


def main() -> None:
    """Print one table; every strategy in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--strategy", choices=[*STRATEGIES, "all"], default="ddp")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if options.strategy == "all":
        for name in STRATEGIES:
            sizes = ["--steps", str(options.steps), "--rounds", str(options.rounds)]
            subprocess.run([sys.executable, __file__, "--strategy", name, *sizes], check=True)
        return
    torch.set_num_threads(1)
    join(ALONE)
    deferred_dynamo.defer()
    with (
        tempfile.TemporaryDirectory() as folder,
        (Path(folder) / "stdout").open("w") as quiet,
        contextlib.redirect_stdout(quiet),
    ):
        measure(options.strategy, options.steps, options.rounds, Path(folder) / "metrics.jsonl")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
