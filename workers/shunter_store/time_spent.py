"""What the metric points tell of how each start of a gang spent its time: how long it took to do steps that an earlier
one had done before, and how long training stood still to save."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select

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


_POINTS = (
    select(metric_chunks.c.generation, metric_chunks.c.points)
    .where(metric_chunks.c.job_id == bindparam("job"))
    .order_by(metric_chunks.c.generation, metric_chunks.c.chunk)
)


def paces(conn: Connection, job_id: str) -> dict[int, Pace]:
    """By generation, of those that reported points."""
    found: dict[int, Pace] = {}
    reached: int | None = None
    for generation, rows in groupby(conn.execute(_POINTS, {"job": job_id}), key=lambda row: row.generation):
        tally = _Tally()
        for row in rows:
            tally.add(row.points)
        found[generation] = tally.pace(reached)
        reached = max(tally.last[0], tally.last[0] if reached is None else reached)
    return found


class _Tally:
    """The points of one generation, chunk by chunk in the order of their steps."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self.last = (0, 0.0)
        """Step and time."""
        self._saving_s = 0.0

    def add(self, packed: dict[str, Any]) -> None:
        """One chunk, which has at least one point."""
        steps, at = packed["steps"], packed["at"]
        self._first = self._first or (steps[0], at[0])
        self.last = (steps[-1], at[-1])
        self._saving_s += sum(value for value in packed["values"].get(SAVING) or () if value is not None and value > 0)

    def pace(self, reached: int | None) -> Pace:
        """`reached`: the last step that was done before; None: it is the first."""
        assert self._first is not None, "a chunk has points"
        (first_step, first_at), (last_step, last_at) = self._first, self.last
        repeated_s = 0.0
        if reached is not None and last_step <= reached:
            repeated_s = float("inf")
        elif reached is not None and first_step <= reached:
            a_step_s = max(0.0, last_at - first_at) / (last_step - first_step)
            repeated_s = (reached - first_step + 1) * a_step_s
        return Pace(first_step, last_step, self._saving_s, repeated_s)
