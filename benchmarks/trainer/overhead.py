"""Host overhead of the trainer's loop: a null model in one process, our loop against a bare one, interleaved.

    python benchmarks/trainer/overhead.py [--strategy ddp | all] [--steps 100] [--rounds 60]

Both loops use the same strategy, model, optimizer kind and data; what differs is everything the trainer adds: sample
order, batches, seeds, schedule, looks, metrics, guards, the step's phases, the hang watchdog. Every step is timed by
itself, and the loops take turns every few steps: so a change of the machine's speed meets both. Prints microseconds of
the median step and of the fastest tenth, where other load on the machine shows least, and how far ours are above. CPU
time of the one thread that trains is counted. Looks, about one a second, are too few to show in a median.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
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


class Steps:
    """CPU time of each step of a loop, in microseconds, from one `mark` to the next."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self._before: int | None = None

    def mark(self) -> None:
        """Called once in every step, at the same place."""
        now = time.thread_time_ns()
        if self._before is not None:
            self.taken.append((now - self._before) / 1000)
        self._before = now

    def pause(self) -> None:
        """What follows up to the next mark is no step."""
        self._before = None

    def fastest(self, share: float) -> float:
        """The time below which this share of the steps stays."""
        return sorted(self.taken)[int(share * len(self.taken))]


def by_hand(
    step: Step, batches: tuple[Tensor, ...], steps: int, clip_norm: float | None, mark: Callable[[], None]
) -> None:
    """A loop as one writes it."""
    for number in range(steps):
        mark()
        step({"x": batches[number % len(batches)]}, clip_norm, LR)


def measure(name: str, steps: int, rounds: int, metrics: Path) -> None:
    """One line for each kind of clipping."""
    pool = torch.randn(1024, 4)
    batches = torch.split(pool, BATCH)
    samples = TensorPool({"x": pool}, 1024, 0)
    for clip_norm in (None, 1.0):
        bare = partial(by_hand, bare_step(name, Null(), adamw, ALONE, BATCH), batches)
        ours = our_loop(name, Null(), adamw, samples, ALONE, BATCH, metrics, factor=lambda step: 1.0)
        timed: list[tuple[Callable[..., None], Steps]] = [(bare, Steps()), (ours, Steps())]
        for loop, _ in timed:
            loop(2 * steps, clip_norm, lambda: None)
        gc.collect()
        gc.freeze()
        for _ in range(rounds):
            for loop, times in timed:
                loop(steps, clip_norm, times.mark)
                times.pause()
        print(_line(name, clip_norm, *(times for _, times in timed)), file=sys.stderr, flush=True)


def _line(name: str, clip_norm: float | None, bare: Steps, ours: Steps) -> str:
    clipping = "with clipping" if clip_norm else "no clipping  "
    (base, own), (fast, fast_own) = ([times.fastest(share) for times in (bare, ours)] for share in (0.5, 0.1))
    return (
        f"{name:7} {clipping}  bare {base:7.1f} us/step  ours {own:7.1f}  overhead {own - base:+6.1f}"
        f"  (fastest tenth {fast:.1f} and {fast_own:.1f}: {fast_own - fast:+.1f})"
    )


def main() -> None:
    """Print one table; every strategy in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--strategy", choices=[*STRATEGIES, "all"], default="ddp")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=60)
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
