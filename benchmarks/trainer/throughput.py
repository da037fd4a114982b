"""Steps per second of the trainer against loops written by hand and `accelerate`'s, interleaved, in the same processes.

    python benchmarks/trainer/throughput.py [--strategy ddp | all] [--rounds 12] [--steps 40] [--batch 16] [--ranks 2]

Every rank holds all trainings; each round runs them in turn, in another order each time. The same model, strategy,
optimizer, clipping, schedule and data; one OpenMP thread a rank. Prints steps per second of each round, and the median
and range of the ratios, by wall time and by CPU time (which other load on the machine disturbs less). `accelerate`
takes part under `ddp` and `fsdp`.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from bare_loops import STRATEGIES, Step, accelerate_step, bare_step
from our_loop import our_loop
from shunter_schemas.training import TrainingWorkload
from shunter_trainer import deferred_dynamo
from shunter_trainer.data.build import build_data
from shunter_trainer.gang import Gang, join
from shunter_trainer.models.build import build_model
from shunter_trainer.models.materialise import materialise
from shunter_trainer.models.objective import Objective
from shunter_trainer.optim.optimizers import decay_groups
from shunter_trainer.places import Places
from torch import nn

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
DECAY_STEPS = 10_000
LENGTH = 128


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of all."""
    return torch.optim.AdamW(decay_groups(model, 0.1), lr=LR, fused=True)


def factor(step: int) -> float:
    """The learning rate's schedule, as a share of the peak."""
    return 0.5 * (1 + math.cos(math.pi * min(step / DECAY_STEPS, 1)))


def whole_module(workload: TrainingWorkload) -> nn.Module:
    """The model with its first values, for those who write their loops by hand."""
    built = build_model(workload)
    materialise(built.module.named_modules(), built.fill, torch.device("cpu"))
    return built.module


def by_hand(step: Step, gang: Gang, batch: int) -> Callable[[int], None]:
    """A loop around a step as one writes it: shuffled rows of a table of bytes."""
    table = torch.randint(256, (4096, LENGTH), dtype=torch.uint8)
    share, generator = batch // gang.world_size, torch.Generator().manual_seed(17)
    state: dict[str, Any] = {"step": 0, "order": torch.empty(0, dtype=torch.int64), "start": 0}

    def run(steps: int) -> None:
        for _ in range(steps):
            if state["start"] + batch > len(state["order"]):
                state.update(order=torch.randperm(len(table), generator=generator), start=0)
            first = state["start"] + gang.rank * share
            ids = table[state["order"][first : first + share]].long()
            step({"input_ids": ids, "labels": ids}, CLIP_NORM, LR * factor(state["step"]))
            state.update(step=state["step"] + 1, start=state["start"] + batch)

    return run


def contestants(name: str, gang: Gang, batch: int) -> dict[str, Callable[[int], None]]:
    """Everything that is measured, by its name."""
    workload = TrainingWorkload.model_validate_json(json.dumps(WORKLOAD))
    places, built = Places.from_environment(), build_model(workload)
    trainer = our_loop(
        name,
        built.module,
        adamw,
        build_data(workload, places).train,  # type: ignore[arg-type]  # it has a length
        gang,
        batch,
        Path(str(places.metrics)),
        fill=built.fill,
        objective=Objective(None, built.accepts, own_labels=True),
        factor=factor,
    )
    found: dict[str, Callable[[int], None]] = {"trainer": lambda steps: trainer(steps, CLIP_NORM)}
    bare = bare_step(name, whole_module(workload), adamw, gang, batch // gang.world_size)
    found["by hand"] = by_hand(bare, gang, batch)
    if name in ("ddp", "fsdp"):
        found["accelerate"] = by_hand(accelerate_step(name, whole_module(workload), adamw), gang, batch)
    return found


def rank_main(name: str, rounds: int, steps: int, batch: int) -> None:
    """One rank: all trainings in turns; rank 0 prints the seconds of each round."""
    gang = Gang.from_environment()
    join(gang)
    deferred_dynamo.defer()
    results = sys.stdout
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # open to the end
    runs = contestants(name, gang, batch)
    for run in runs.values():
        run(8)
    gc.freeze()
    for number in range(rounds):
        order = list(runs) if number % 2 else list(reversed(runs))
        shift = number % len(order)
        seconds = {}
        for who in order[shift:] + order[:shift]:
            dist.barrier()
            began, cpu_began = time.perf_counter(), time.process_time()
            runs[who](steps)
            dist.barrier()
            seconds[who] = [time.perf_counter() - began, time.process_time() - cpu_began]
        if gang.is_main:
            print(json.dumps(seconds), file=results, flush=True)
    dist.barrier()
    os._exit(0)


def measure(name: str, options: argparse.Namespace) -> list[dict[str, list[float]]]:
    """Start the ranks; seconds of wall and of CPU by name, for each round."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    sizes = ["--rounds", str(options.rounds), "--steps", str(options.steps), "--batch", str(options.batch)]
    with tempfile.TemporaryDirectory() as folder:
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(options.ranks)}
        common |= {"LOCAL_WORLD_SIZE": str(options.ranks), "ACCELERATE_USE_CPU": "true", "DS_ACCELERATOR": "cpu"}
        common |= {"OMP_NUM_THREADS": "1", "SHUNTER_DOCUMENT": folder, "CUDA_VISIBLE_DEVICES": ""}
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--strategy", name, *sizes],
                env={
                    **os.environ,
                    **common,
                    **{"RANK": str(rank), "LOCAL_RANK": str(rank)},
                    "SHUNTER_METRICS_FILE": f"{folder}/metrics-{rank}",
                },
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(options.ranks)
        ]
        lines = processes[0].communicate()[0].splitlines()
        assert [process.wait() for process in processes] == [0] * options.ranks
    return [json.loads(line) for line in lines if line.startswith("{")]


def show(name: str, rounds: list[dict[str, list[float]]], steps: int) -> None:
    """Rounds, then the medians and ranges of the ratios."""
    for seconds in rounds:
        print("  ".join(f"{who} {steps / wall:7.2f}" for who, (wall, _) in sorted(seconds.items())), "steps/s")
    for other in sorted(rounds[0].keys() - {"trainer"}):
        for index, clock in enumerate(("wall", "CPU")):
            ratios = [seconds[other][index] / seconds["trainer"][index] for seconds in rounds]
            print(
                f"{name:7} trainer / {other:10} by {clock:4} time: median {statistics.median(ratios):.3f}"
                f"  ({min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} rounds)",
                flush=True,
            )


def main() -> None:
    """Start the ranks and print one table for each strategy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--strategy", choices=[*STRATEGIES, "all"], default="ddp")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    if "RANK" in os.environ:
        return rank_main(options.strategy, options.rounds, options.steps, options.batch)
    for name in STRATEGIES if options.strategy == "all" else [options.strategy]:
        show(name, measure(name, options), options.steps)
    return None


if __name__ == "__main__":
    main()
