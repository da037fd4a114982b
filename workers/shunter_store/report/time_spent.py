"""What the metric points tell of how each start of a gang spent its time: how long it took to do steps that an earlier
one had done before, and how long training stood still to save."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, func, select

from shunter_store.tables import metric_chunks

SAVING: Final = "checkpoint_blocked_s"
"""The trainer's metric: seconds for which the training stood still for a checkpoint."""


@dataclass(frozen=True, slots=True)
class Pace:
    """One generation, by the clocks of its nodes."""

    first_step: int
    last_step: int
    saving_s: float
    repeated_s: float
    """Doing steps that were done before; infinite where it never came further than its predecessors."""


_SPANS = (
    select(metric_chunks.c.generation, func.min(metric_chunks.c.chunk), func.max(metric_chunks.c.chunk))
    .where(metric_chunks.c.job_id == bindparam("job"))
    .group_by(metric_chunks.c.generation)
    .order_by(metric_chunks.c.generation)
)
_ONE_CHUNK = select(metric_chunks.c.points).where(
    metric_chunks.c.job_id == bindparam("job"),
    metric_chunks.c.generation == bindparam("of_generation"),
    metric_chunks.c.chunk == bindparam("at"),
)
# The database picks the one series out of each chunk: a chunk holds a dozen, and a long training thousands of chunks.
_SAVED = select(metric_chunks.c.generation, metric_chunks.c.points["values", SAVING]).where(
    metric_chunks.c.job_id == bindparam("job")
)


def paces(conn: Connection, job_id: str) -> dict[int, Pace]:
    """By generation, of those that reported points."""
    saving_s: dict[int, float] = defaultdict(float)
    for generation, values in conn.execute(_SAVED, {"job": job_id}):
        saving_s[generation] += sum(value for value in values or () if value is not None and value > 0)
    found: dict[int, Pace] = {}
    reached: int | None = None
    for generation, first, last in conn.execute(_SPANS, {"job": job_id}).all():
        begun, ended = (
            conn.execute(_ONE_CHUNK, {"job": job_id, "of_generation": generation, "at": at}).scalar_one()
            for at in (first, last)
        )
        step, last_step = begun["steps"][0], ended["steps"][-1]
        repeated_s = _repeated_s(step, last_step, max(0.0, ended["at"][-1] - begun["at"][0]), reached)
        found[generation] = Pace(step, last_step, saving_s[generation], repeated_s)
        reached = last_step if reached is None else max(reached, last_step)
    return found


def _repeated_s(first_step: int, last_step: int, took_s: float, reached: int | None) -> float:
    """`reached`: the last step that was done before; None: it is the first generation."""
    if reached is None or first_step > reached:
        return 0.0
    if last_step <= reached:
        return float("inf")
    return (reached - first_step + 1) * took_s / (last_step - first_step)
