"""Trainings that stop under one strategy and go on under another, with other numbers of ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from support.gangs import Trained, Training, checkpoint_of, train_all
from support.strategies import RESUMABLE, strategy
from support.trainings import document

SAVED_AT, END = 4, 8
WORLD_SIZES = (1, 2, 4)
TOLERANCE = 5e-6


class Place(NamedTuple):
    """A strategy and a number of ranks."""

    name: str
    world_size: int

    def __str__(self) -> str:
        return f"{self.name} on {self.world_size}"


PLACES = tuple(Place(name, world_size) for world_size in WORLD_SIZES for name in RESUMABLE)
Move = tuple[Place, Place]


def whole_matrix() -> list[Move]:
    """From everywhere to everywhere."""
    return [(before, after) for before in PLACES for after in PLACES]


def pairwise_cover() -> list[Move]:
    """Moves in which each two of (strategy before, ranks before, strategy after, ranks after) meet in every way.

    Every pair of strategies once; the ranks are two sums of their numbers that determine each other in no way.
    """
    numbered = list(enumerate(RESUMABLE))
    return [
        (Place(before, WORLD_SIZES[(i + j) % 3]), Place(after, WORLD_SIZES[(i + 2 * j) % 3]))
        for i, before in numbered
        for j, after in numbered
    ]


def differences(folder: Path, moves: Iterable[Move], timeout_s: float) -> dict[str, float]:
    """Make these moves; how far the losses after each are from those of a training that nobody stopped."""
    moves = list(moves)
    whole = _train(folder / "before", {before for before, _ in moves} | {Place("ddp", 1)}, timeout_s)
    resumed: dict[str, Trained] = {}
    for world_size in WORLD_SIZES:
        trainings = [
            Training(_name(before, after), _document(after), checkpoint_of(whole[before].folder, SAVED_AT))
            for before, after in moves
            if after.world_size == world_size
        ]
        if trainings:
            resumed |= train_all(folder / f"after-{world_size}", world_size, trainings, timeout_s)
    expected = whole[Place("ddp", 1)].losses
    return {name: _apart(expected, trained.losses) for name, trained in resumed.items()}


def _train(folder: Path, places: Iterable[Place], timeout_s: float) -> Mapping[Place, Trained]:
    found: dict[Place, Trained] = {}
    for world_size in WORLD_SIZES:
        here = sorted(place for place in places if place.world_size == world_size)
        if here:
            trainings = [Training(str(place), _document(place)) for place in here]
            trained = train_all(folder / str(world_size), world_size, trainings, timeout_s)
            found |= {place: trained[str(place)] for place in here}
    return found


def _document(place: Place) -> dict[str, Any]:
    members: dict[str, Any] = {
        # A warm-up that ends and a decay that begins after the stop; two micro-batches; clipping that bites.
        "optimizer": {"kind": "adamw", "lr": 0.002, "betas": [0.9, 0.95], "weight_decay": 0.1},
        "schedule": {"kind": "cosine", "warmup_steps": 5, "min_lr_ratio": 0.1},
        "batch": {"global_size": 8, "micro_size": 8 // place.world_size // 2},
        "duration": {"steps": END},
        "checkpoint": {"every_steps": SAVED_AT, "keep": 2},
    }
    return {**document(**members), "strategy": strategy(*place)}


def _name(before: Place, after: Place) -> str:
    return f"{before}, then {after}"


def _apart(whole: Mapping[int, float], resumed: Mapping[int, float]) -> float:
    if list(resumed) != list(range(SAVED_AT + 1, END + 1)):
        return math.inf
    return max(abs(whole[step] - loss) for step, loss in resumed.items())
