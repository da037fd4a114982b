"""Steps per second of the trainer against a DDP loop written by hand, in pairs, interleaved, in the same processes.

    python benchmarks/trainer/throughput.py [--rounds 12] [--steps 40] [--batch 16] [--ranks 2]

Every rank holds both trainings; each round runs the one and then the other, in turn first and second. The same model,
optimizer, clipping, schedule and data; one OpenMP thread a rank. Prints the ratio of each round, median and range.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from shunter_schemas.training import TrainingCheckpoint, TrainingWorkload
from shunter_trainer import deferred_dynamo
from shunter_trainer.checkpoint.save import Position, Saver
from shunter_trainer.data.build import build_data
from shunter_trainer.data.geometry import Geometry
from shunter_trainer.data.stream import Seat, open_stream
from shunter_trainer.gang import Gang, join
from shunter_trainer.guards.hang import HangWatchdog
from shunter_trainer.guards.stop import Wishes
from shunter_trainer.loop import Course, Crew, Loop
from shunter_trainer.models.build import build_model
from shunter_trainer.models.materialise import materialise
from shunter_trainer.models.objective import Objective
from shunter_trainer.optim.optimizers import decay_groups
from shunter_trainer.pace import Pace
from shunter_trainer.places import Places
from shunter_trainer.reports import Reports
from shunter_trainer.seeds import step_seeder
from shunter_trainer.strategies import strategy_for
from shunter_trainer.strategies.base import Parts
from shunter_trainer.strategies.names import unsaved_buffers
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORKLOAD = {
    "kind": "training",
    "model": {"kind": "transformer", "layers": 3, "hidden": 128, "heads": 4, "ffn": 512, "vocab": 256, "context": 128},
    "data": {"kind": "sample"},
    "batch": {"global_size": 16},
    "duration": {"steps": 300},
    "precision": "fp32",
}
CLIP_NORM = 1.0
LR = 1e-3


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of both."""
    return torch.optim.AdamW(decay_groups(model, 0.1), lr=LR, fused=True)


def by_hand(gang: Gang, workload: TrainingWorkload, batch: int) -> Iterator[None]:
    """A loop as one writes it; one step at each `next`."""
    table = cast(Any, build_data(workload, Places.from_environment()).train)._tokens
    built = build_model(workload)
    module = built.module
    materialise(module.named_modules(), built.fill, gang.device)
    cast(Any, DistributedDataParallel)._set_params_and_buffers_to_ignore_for_model(module, unsaved_buffers(module))
    model = DistributedDataParallel(module, gradient_as_bucket_view=True)
    optimizer = adamw(model)
    share = batch // gang.world_size
    generator = torch.Generator().manual_seed(17)
    step = 0
    while True:
        order = torch.randperm(len(table), generator=generator)
        for start in range(0, len(order) - batch + 1, batch):
            first = start + gang.rank * share
            ids = table[order[first : first + share]].long()
            loss = model(input_ids=ids, labels=ids)["loss"]
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            for group in optimizer.param_groups:
                group["lr"] = LR * 0.5 * (1 + math.cos(math.pi * min(step / 10_000, 1)))
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            yield


class NoSaver:
    """Checkpoints are not what is measured here."""

    blocked_s = 0.0

    def save(self, *args: Any) -> None:
        """Nothing."""

    def wait(self) -> None:
        """Nothing."""


def ours(gang: Gang, workload: TrainingWorkload, batch: int) -> Callable[[int], None]:
    """The trainer's loop: a function that runs some steps more."""
    places = Places.from_environment()
    built = build_model(workload)
    strategy = strategy_for(cast(Any, _strategy()))
    objective = Objective(None, built.accepts, own_labels=True)
    strategy.prepare(Parts(built.module, objective, adamw, False, torch.float32, torch.float32, gang, built.fill))
    reports = Reports(places.metrics, gang.is_main)
    watchdog = HangWatchdog(reports.failure)
    watchdog.start()
    geometry = Geometry(batch, batch // gang.world_size, gang.world_size)
    stream = open_stream(build_data(workload, places).train, Seat(geometry, gang.rank, gang.device, 17, 0), 0)
    seed_step = step_seeder(17, gang)

    def run(steps: int) -> None:
        factor = lambda step: 0.5 * (1 + math.cos(math.pi * step / 10_000))  # noqa: E731
        course = Course(steps, batch, 128, factor, CLIP_NORM, TrainingCheckpoint(), None)
        crew = Crew(
            strategy, stream, None, cast(Saver, NoSaver()), reports, watchdog, Wishes(), Pace(gang, 0), seed_step
        )
        Loop(course, crew, Position(0, 0, "", 1, "ddp")).run()

    return run


def _strategy() -> Any:
    from shunter_schemas.strategies import DdpStrategy

    return DdpStrategy(kind="ddp")


def rank_main(rounds: int, steps: int, batch: int) -> None:
    """One rank: both trainings in turns; rank 0 prints the seconds of each round."""
    gang = Gang.from_environment()
    join(gang)
    deferred_dynamo.defer()
    workload = TrainingWorkload.model_validate_json(json.dumps(WORKLOAD))
    hand, trainer = by_hand(gang, workload, batch), ours(gang, workload, batch)

    def run_by_hand(count: int) -> None:
        for _ in range(count):
            next(hand)

    results = sys.stdout
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # open to the end
    for run in (run_by_hand, trainer):
        run(8)
    gc.freeze()
    for number in range(rounds):
        seconds = {}
        for run in (run_by_hand, trainer) if number % 2 else (trainer, run_by_hand):
            dist.barrier()
            began, cpu_began = time.perf_counter(), time.process_time()
            run(steps)
            dist.barrier()
            name = "by_hand" if run is run_by_hand else "trainer"
            seconds[name] = time.perf_counter() - began
            seconds[f"{name}_cpu"] = time.process_time() - cpu_began
        if gang.is_main:
            print(json.dumps(seconds), file=results, flush=True)
    dist.barrier()
    os._exit(0)


def main() -> None:
    """Start the ranks and print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    if "RANK" in os.environ:
        return rank_main(options.rounds, options.steps, options.batch)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(options.ranks)}
        common |= {"OMP_NUM_THREADS": "1", "SHUNTER_DOCUMENT": folder, "CUDA_VISIBLE_DEVICES": ""}
        processes = [
            subprocess.Popen(
                [sys.executable, *sys.argv],
                env={**os.environ, **common, "RANK": str(rank), "SHUNTER_METRICS_FILE": f"{folder}/metrics-{rank}"},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(options.ranks)
        ]
        lines = processes[0].communicate()[0].splitlines()
        assert [process.wait() for process in processes] == [0] * options.ranks
    return show([json.loads(line) for line in lines], options.steps)


def show(rounds: list[dict[str, float]], steps: int) -> None:
    """Ratios by round, then their median and range."""
    ratios = [seconds["by_hand"] / seconds["trainer"] for seconds in rounds]
    for seconds, ratio in zip(rounds, ratios, strict=True):
        print(
            f"by hand {steps / seconds['by_hand']:7.2f}  trainer {steps / seconds['trainer']:7.2f} steps/s  {ratio:.3f}"
        )
    print(f"trainer / by hand: median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    cpu = [seconds["by_hand_cpu"] / seconds["trainer_cpu"] for seconds in rounds]
    print(f"by CPU time of rank 0: median {statistics.median(cpu):.3f} ({min(cpu):.3f} to {max(cpu):.3f})")


if __name__ == "__main__":
    main()
