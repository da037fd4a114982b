"""The same training under every strategy, and how far its losses are apart.

PYTHONPATH=tests python -m support.parity        # measures and rewrites the table of docs/training/strategies.md
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from support.documents import REPOSITORY
from support.gangs import Trained, Training, train_all
from support.strategies import ALL, VARIANTS, strategy
from support.trainings import document

STEPS = 60
TOLERANCE = {"fp32": 5e-6, "bf16": 5e-3}
"""Largest difference of the loss at any step; fp32 differs by the order of sums only."""
REFERENCE = "ddp"
PAGE = REPOSITORY / "docs" / "training" / "strategies.md"
_BEGIN, _END = "<!-- parity: written by tests/support/parity.py -->", "<!-- end of parity -->"


def training(name: str, world_size: int, precision: str) -> Training:
    """Sixty steps with accumulation over two micro-batches and clipping that bites."""
    members: dict[str, Any] = {
        "optimizer": {"kind": "adamw", "lr": 0.002, "betas": [0.9, 0.95], "weight_decay": 0.1},
        "schedule": {"kind": "cosine", "warmup_steps": 10, "min_lr_ratio": 0.1},
        "batch": {"global_size": 16, "micro_size": 16 // world_size // 2},
        "gradient_clip_norm": 0.5,
        "duration": {"steps": STEPS},
        "checkpoint": {"every_s": 3600, "keep": 1},
        "precision": precision,
    }
    return Training(f"{precision} {name}", {**document(**members), "strategy": strategy(name, world_size)})


def run(
    folder: Path, world_size: int, names: Sequence[str], precisions: Sequence[str], **options: Any
) -> dict[str, Trained]:
    """Train under these strategies in one gang; by `precision name`."""
    trainings = [training(name, world_size, precision) for precision in precisions for name in names]
    return train_all(folder, world_size, trainings, **options)


def apart(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    """The largest difference of two loss curves; not finite when they do not cover the same steps."""
    if list(first) != list(range(1, STEPS + 1)) or list(second) != list(first):
        return math.inf
    return max(abs(first[step] - second[step]) for step in first)


def measure(folder: Path, world_size: int) -> dict[str, Trained]:
    """Every strategy and precision on this number of ranks."""
    return run(folder / str(world_size), world_size, (*ALL, *VARIANTS), tuple(TOLERANCE), timeout_s=900.0)


def table(trained: Mapping[int, Mapping[str, Trained]]) -> str:
    """A row a strategy, a column a number of ranks and precision; `trained` by number of ranks."""
    columns = [(world_size, precision) for precision in TOLERANCE for world_size in trained]
    head = ["strategy", *(f"{precision}, {_ranks(world_size)}" for world_size, precision in columns)]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for name in (*ALL, *VARIANTS):
        cells = [
            apart(trained[1][f"{precision} {REFERENCE}"].losses, trained[world_size][f"{precision} {name}"].losses)
            for world_size, precision in columns
        ]
        lines.append(" | ".join([name, *(f"{cell:.1e}" if cell else "0" for cell in cells)]))
    return "\n".join(f"| {line} |" for line in lines)


def write(found: str) -> None:
    """Put a table between its marks in the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    after = rest.partition(_END)[2]
    measured = f"Measured on {datetime.now(UTC):%Y-%m-%d} with torch {torch.__version__} on CPUs (gloo):"
    command = "`PYTHONPATH=tests python -m support.parity`"
    PAGE.write_text(f"{before}{_BEGIN}\n{measured}\n{command}.\n\n{found}\n{_END}{after}", encoding="utf-8")


def main() -> None:
    """Measure everything and rewrite the table."""
    with tempfile.TemporaryDirectory() as folder:
        found = table({world_size: measure(Path(folder), world_size) for world_size in (1, 2, 4)})
    write(found)
    sys.stdout.write(f"{found}\n")


def _ranks(world_size: int) -> str:
    return f"{world_size} rank{'s' if world_size > 1 else ''}"


if __name__ == "__main__":
    main()
