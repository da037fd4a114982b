"""Metric points in chunks of 256 steps, read as series that are binned on request; and where the training is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from shunter_schemas.node_sync import MetricPoint
from shunter_schemas.node_sync import Progress as ReportedProgress
from sqlalchemy import Connection, bindparam, select

from shunter_store.rows import all_of, columns_of
from shunter_store.sqltypes import PerDialect
from shunter_store.tables import metric_chunks
from shunter_store.tables import progress as progress_table

STEPS_PER_CHUNK: Final = 256

Point = tuple[float, dict[str, float]]
"""When (epoch seconds by the node's clock), and the values by name."""


@dataclass(slots=True)
class Series:
    """One metric over the steps. Without binning every list holds one entry a step and mean = min = max."""

    name: str
    steps: list[int] = field(default_factory=list)
    """The first step of each bin."""
    at: list[float] = field(default_factory=list)
    generations: list[int] = field(default_factory=list)
    """A step that was repeated after a recovery shows the newest generation's value."""
    means: list[float] = field(default_factory=list)
    mins: list[float] = field(default_factory=list)
    maxs: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """Where a generation of a training is."""

    job_id: str
    generation: int
    at: datetime
    step: int
    total_steps: int | None
    values: dict[str, float]
    eta_s: float | None


_CHUNK_KEY = (
    metric_chunks.c.job_id == bindparam("job"),
    metric_chunks.c.generation == bindparam("of_generation"),
    metric_chunks.c.chunk.in_(bindparam("chunks", expanding=True)),
)
_CHUNKS = select(metric_chunks.c.chunk, metric_chunks.c.points).where(*_CHUNK_KEY).with_for_update()
_RANGE = (
    select(metric_chunks.c.generation, metric_chunks.c.points)
    .where(
        metric_chunks.c.job_id == bindparam("job"),
        metric_chunks.c.chunk.between(bindparam("first"), bindparam("last")),
    )
    .order_by(metric_chunks.c.generation)
)


def _upsert_chunk(insert: Any) -> Any:
    statement = insert(metric_chunks)
    return statement.on_conflict_do_update(
        index_elements=["job_id", "chunk", "generation"], set_={"points": statement.excluded.points}
    )


def _upsert_progress(insert: Any) -> Any:
    statement = insert(progress_table)
    new = statement.excluded
    names = ("at", "step", "total_steps", "values", "eta_s")
    return statement.on_conflict_do_update(
        index_elements=["job_id", "generation"],
        set_={name: new[name] for name in names},
        where=progress_table.c.at <= new.at,
    )


_PUT_CHUNK = PerDialect(_upsert_chunk)
_PUT_PROGRESS = PerDialect(_upsert_progress)
_PROGRESS = (
    select(*columns_of(ProgressRow, progress_table))
    .where(progress_table.c.job_id.in_(bindparam("ids", expanding=True)))
    .order_by(progress_table.c.job_id, progress_table.c.generation)
)


def add_points(conn: Connection, job_id: str, generation: int, points: Iterable[MetricPoint]) -> None:
    """Keep points by (generation, step): the newest of a step wins, value by value. Repeating it changes nothing."""
    by_chunk: dict[int, list[MetricPoint]] = defaultdict(list)
    for point in points:
        by_chunk[point.step // STEPS_PER_CHUNK].append(point)
    if not by_chunk:
        return
    key = {"job": job_id, "of_generation": generation, "chunks": sorted(by_chunk)}
    kept = {row.chunk: _unpack(row.points) for row in conn.execute(_CHUNKS, key)}
    rows = []
    for chunk, fresh in sorted(by_chunk.items()):
        merged = kept.get(chunk, {})
        for point in fresh:
            _, values = merged.get(point.step, (0.0, {}))
            merged[point.step] = (point.at, {**values, **point.values})
        rows.append({"job_id": job_id, "generation": generation, "chunk": chunk, "points": _pack(merged)})
    conn.execute(_PUT_CHUNK.on(conn), rows)


def series(
    conn: Connection,
    job_id: str,
    *,
    names: Collection[str] | None = None,
    from_step: int = 0,
    to_step: int | None = None,
    max_points: int | None = None,
) -> list[Series]:
    """Series by name, over the steps `from_step … to_step` (both included), in at most `max_points` bins each."""
    last = (1 << 62) if to_step is None else to_step
    span = {"job": job_id, "first": from_step // STEPS_PER_CHUNK, "last": last // STEPS_PER_CHUNK}
    newest: dict[int, tuple[int, Point]] = {}
    for row in conn.execute(_RANGE, span):
        newest.update((step, (row.generation, point)) for step, point in _unpack(row.points).items())
    by_name: dict[str, list[tuple[int, int, float, float]]] = defaultdict(list)
    for step, (generation, (at, values)) in sorted(newest.items()):
        if from_step <= step <= last:
            for name, value in values.items():
                if names is None or name in names:
                    by_name[name].append((step, generation, at, value))
    return [_binned(name, points, max_points) for name, points in sorted(by_name.items())]


def set_progress(conn: Connection, job_id: str, generation: int, at: datetime, progress: ReportedProgress) -> None:
    """Keep where this generation is, unless something newer is known of it."""
    row = {
        "job_id": job_id,
        "generation": generation,
        "at": at,
        "step": progress.step,
        "total_steps": progress.total_steps,
        "values": progress.values,
        "eta_s": progress.eta_s,
    }
    conn.execute(_PUT_PROGRESS.on(conn), row)


def progress(conn: Connection, job_ids: Sequence[str]) -> dict[str, ProgressRow]:
    """Where each of these jobs is, for those that reported: by the newest generation that did."""
    if not job_ids:
        return {}
    return {row.job_id: row for row in all_of(ProgressRow, conn.execute(_PROGRESS, {"ids": list(job_ids)}))}


def progress_by_generation(conn: Connection, job_id: str) -> list[ProgressRow]:
    """How far each generation of the job came, for those that reported, oldest first."""
    return all_of(ProgressRow, conn.execute(_PROGRESS, {"ids": [job_id]}))


def _pack(points: Mapping[int, Point]) -> dict[str, Any]:
    """Columns, which is a third of the size of one object a step."""
    steps = sorted(points)
    names = sorted({name for _, values in points.values() for name in values})
    return {
        "steps": steps,
        "at": [points[step][0] for step in steps],
        "values": {name: [points[step][1].get(name) for step in steps] for name in names},
    }


def _unpack(packed: Mapping[str, Any]) -> dict[int, Point]:
    points: dict[int, Point] = {step: (at, {}) for step, at in zip(packed["steps"], packed["at"], strict=True)}
    for name, column in packed["values"].items():
        for step, value in zip(packed["steps"], column, strict=True):
            if value is not None:
                points[step][1][name] = value
    return points


def _binned(name: str, points: list[tuple[int, int, float, float]], max_points: int | None) -> Series:
    """Bins hold equally many points, so that no bin is empty and the ends are kept."""
    made = Series(name)
    bins = len(points) if max_points is None else max(1, min(max_points, len(points)))
    for index in range(bins):
        part = points[index * len(points) // bins : (index + 1) * len(points) // bins]
        values = [value for _, _, _, value in part]
        made.steps.append(part[0][0])
        made.generations.append(part[-1][1])
        made.at.append(part[-1][2])
        made.means.append(sum(values) / len(values))
        made.mins.append(min(values))
        made.maxs.append(max(values))
    return made
