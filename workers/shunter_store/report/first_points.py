"""The first metric point of a start of a gang: when it was back at work, and how long it had taken to load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, select

from shunter_store.tables import metric_chunks

LOADING: Final = "checkpoint_load_s"
"""The trainer's metric: seconds that it took to load the checkpoint from which it goes on."""


@dataclass(frozen=True, slots=True)
class FirstPoint:
    """Of one generation."""

    step: int
    at: float
    """Epoch seconds by the node's clock."""
    load_s: float | None = None
    """None: nothing was loaded, or the program does not tell."""


_FIRST_CHUNK = (
    select(metric_chunks.c.points)
    .where(metric_chunks.c.job_id == bindparam("job"), metric_chunks.c.generation == bindparam("of_generation"))
    .order_by(metric_chunks.c.chunk)
    .limit(1)
)


def first_points(conn: Connection, job_id: str, generations: Iterable[int]) -> dict[int, FirstPoint]:
    """By generation, of those that reported."""
    found = {}
    for generation in generations:
        points = conn.execute(_FIRST_CHUNK, {"job": job_id, "of_generation": generation}).scalar()
        if points is not None:
            load_s = next(iter(points["values"].get(LOADING, ())), None)
            found[generation] = FirstPoint(points["steps"][0], points["at"][0], load_s)
    return found
