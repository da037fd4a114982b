"""What a checkpoint every 20 steps costs the example, under each strategy.

    python benchmarks/trainer/saving.py [--strategies ddp fsdp] [--steps 200] [--rounds 3] [--ranks 2]

Two figures: the share of the time for which training stood still while a save began (the rest is written by a thread
beside it), and how much longer the whole took than the same training without saves, in interleaved pairs. The second
has the thread's own work in it, which on a machine with fewer cores than ranks and threads is taken from the ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny-lm-ddp.json"
EVERY_STEPS = 20


class Run(NamedTuple):
    """One training as its first rank saw it."""

    seconds: float
    """From the end of the first step to the last."""
    blocked_s: list[float]


def document(strategy: dict[str, Any], steps: int, saves: bool) -> dict[str, Any]:
    """The example without evaluations, with saves or without."""
    found: dict[str, Any] = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    del found["workload"]["evaluation"]
    found["workload"] |= {
        "duration": {"steps": steps},
        "checkpoint": {"every_steps": EVERY_STEPS, "keep": 2} if saves else {"every_s": 86_400},
        "log_every_steps": 1,
    }
    return {**found, "strategy": strategy}


def train(folder: Path, document: dict[str, Any], world_size: int) -> Run:
    """Run it to its end in processes of its own."""
    folder.mkdir()
    (folder / "document.json").write_text(json.dumps(document))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "shunter_trainer"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            env={
                **os.environ,
                **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
                **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)},
                **{"LOCAL_WORLD_SIZE": str(world_size), "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"},
                "CUDA_VISIBLE_DEVICES": "",
                "SHUNTER_DOCUMENT": str(folder / "document.json"),
                "SHUNTER_CHECKPOINT_DIR": str(folder / "checkpoints"),
                "SHUNTER_OUTPUT_DIR": str(folder / "output"),
                "SHUNTER_METRICS_FILE": str(folder / f"metrics-{rank}.jsonl"),
            },
        )
        for rank in range(world_size)
    ]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        raise SystemExit(f"the ranks ended with {codes}")
    lines = [json.loads(line) for line in (folder / "metrics-0.jsonl").read_text().splitlines()]
    points = [line for line in lines if "step" in line]
    blocked_s = [line["checkpoint_blocked_s"] for line in points if "checkpoint_blocked_s" in line]
    return Run(points[-1]["at"] - points[0]["at"], blocked_s)


def compare(strategy: dict[str, Any], options: argparse.Namespace) -> str:
    """One row: medians over the rounds, and their spread."""
    shares, longer, blocked_ms = [], [], []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            plain, saving = (
                train(Path(folder) / str(saves), document(strategy, options.steps, saves), options.ranks)
                for saves in (False, True)
            )
        shares.append(100 * sum(saving.blocked_s) / saving.seconds)
        longer.append(100 * (saving.seconds / plain.seconds - 1))
        blocked_ms += [1e3 * seconds for seconds in saving.blocked_s]
    return (
        f"{strategy['kind']:6} stood still {statistics.median(shares):5.2f} % "
        f"({min(shares):.2f} to {max(shares):.2f}), "
        f"{statistics.median(blocked_ms):.1f} ms a save;  took longer {statistics.median(longer):+5.1f} % "
        f"({min(longer):+.1f} to {max(longer):+.1f})"
    )


def main() -> None:
    """Print a line for each strategy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--strategies", nargs="+", default=["ddp", "fsdp"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    for kind in options.strategies:
        print(compare({"kind": kind}, options), flush=True)


if __name__ == "__main__":
    main()
