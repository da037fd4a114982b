"""Metric points in chunks of 32 steps, read as series that are binned on request; and where the training is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, pairwise, repeat
from typing import Any, Final

from shunter_schemas.node_sync import MetricPoint
from shunter_schemas.node_sync import Progress as ReportedProgress
from sqlalchemy import Connection, bindparam, func, select, update

from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import PerDialect
from shunter_store.tables import jobs, metric_chunks
from shunter_store.tables import progress as progress_table

STEPS_PER_CHUNK: Final = 32
"""Every point that comes writes its chunk anew, so a chunk is small; a reader takes many of them."""
_LOOKED_AT: Final = 32
"""Chunks that a reader of new points takes at first."""


@dataclass(slots=True)
class Point:
    """What is known of one step of one generation."""

    at: float
    """Epoch seconds by the node's clock."""
    values: dict[str, float]
    arrival: int = 0
    """Its place in the order in which the job's points arrived; it moves when the point gains or changes a value."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A point as a reader takes it who goes on behind the number `number`."""

    number: int
    generation: int
    step: int
    at: float
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Start:
    """Where a generation of the training began, as its points tell."""

    generation: int
    step: int
    at: float
    repeated_steps: int
    """How many of its steps an earlier generation had done before."""


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
    binned: bool = False
    """Whether an entry may stand for several steps."""


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
_CHUNKS = (
    select(metric_chunks.c.chunk, metric_chunks.c.points, metric_chunks.c.first_arrival)
    .where(*_CHUNK_KEY)
    .with_for_update()
)
_RANGE = (
    select(metric_chunks.c.chunk, metric_chunks.c.generation, metric_chunks.c.points)
    .where(
        metric_chunks.c.job_id == bindparam("job"),
        metric_chunks.c.chunk.between(bindparam("first"), bindparam("last")),
    )
    .order_by(metric_chunks.c.chunk, metric_chunks.c.generation)
)
_TAKE_NUMBERS = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(metric_seq=jobs.c.metric_seq + bindparam("count"))
    .returning(jobs.c.metric_seq)
)
_NEWEST_NUMBER = select(jobs.c.metric_seq).where(jobs.c.id == bindparam("job"))
_ARRIVED = (
    select(metric_chunks.c.generation, metric_chunks.c.points, metric_chunks.c.first_arrival)
    .where(metric_chunks.c.job_id == bindparam("job"), metric_chunks.c.last_arrival > bindparam("after"))
    .order_by(metric_chunks.c.first_arrival, metric_chunks.c.chunk, metric_chunks.c.generation)
    .limit(bindparam("limit"))
)
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


def _upsert_chunk(insert: Any) -> Any:
    statement = insert(metric_chunks)
    return statement.on_conflict_do_update(
        index_elements=["job_id", "chunk", "generation"],
        set_={name: statement.excluded[name] for name in ("points", "first_arrival", "last_arrival")},
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


def add_points(conn: Connection, job_id: str, generation: int, points: Sequence[MetricPoint]) -> None:
    """Keep points by (generation, step): the newest of a step wins, value by value. Repeating it changes nothing."""
    by_chunk: dict[int, list[MetricPoint]] = defaultdict(list)
    for point in points:
        by_chunk[point.step // STEPS_PER_CHUNK].append(point)
    if not by_chunk:
        return
    # The job's row stays locked until the transaction ends, so that the order of numbers is the order of commits.
    newest = conn.execute(_TAKE_NUMBERS, {"job": job_id, "count": len(points)}).scalar_one()
    first_number = newest - len(points) + 1
    key = {"job": job_id, "of_generation": generation, "chunks": sorted(by_chunk)}
    kept = {row.chunk: row for row in conn.execute(_CHUNKS, key)}
    rows = []
    for chunk, fresh in sorted(by_chunk.items()):
        before = kept.get(chunk)
        merged = merge_points(None if before is None else before.points, fresh, first_number)
        first_number += len(fresh)
        if merged is not None:
            first = merged.first_arrival if before is None else before.first_arrival
            row = {"job_id": job_id, "generation": generation, "chunk": chunk, "points": merged.packed}
            rows.append({**row, "first_arrival": first, "last_arrival": merged.last_arrival})
    if rows:
        conn.execute(_PUT_CHUNK.on(conn), rows)


@dataclass(frozen=True, slots=True)
class Merged:
    """A chunk with new points in it, as it is stored."""

    packed: dict[str, Any]
    first_arrival: int
    """Of what is new."""
    last_arrival: int


def merge_points(packed: Mapping[str, Any] | None, fresh: Sequence[MetricPoint], first_number: int) -> Merged | None:
    """Put new points, numbered from `first_number`, to those of their chunk; None: they say nothing new. Pure."""
    if packed is not None and _continues(packed, fresh):
        return Merged(_appended(packed, fresh, first_number), first_number, first_number + len(fresh) - 1)
    points = {} if packed is None else _unpack(packed)
    changed = [number for number, point in enumerate(fresh, first_number) if _merge(points, point, number)]
    return Merged(_pack(points), changed[0], changed[-1]) if changed else None


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
    made: dict[str, Series] = {}
    for _, rows in groupby(conn.execute(_RANGE, span), key=lambda row: row.chunk):
        _add_columns(made, _newest_of_each_step([(row.generation, row.points) for row in rows]), names, from_step, last)
    return [_binned(made[name], max_points) for name in sorted(made)]


def arrivals(conn: Connection, job_id: str, after: int, limit: int = 256) -> list[Arrival]:
    """Points with a number above `after` in the order in which they arrived, about `limit` of them.

    None: there are no more so far. A point may come again, with a value more than before.
    """
    several, behind = _LOOKED_AT, after or -1  # points of the time before numbers have 0
    while True:
        rows = conn.execute(_ARRIVED, {"job": job_id, "after": behind, "limit": several + 1}).all()
        # What begins in the first chunk that was left out comes later: up to there everything is at hand.
        last = rows[-1].first_arrival - 1 if len(rows) > several else 1 << 62
        found = [
            Arrival(point.arrival, row.generation, step, point.at, point.values)
            for row in rows[:several]
            for step, point in _unpack(row.points).items()
            if after < point.arrival <= last or after == point.arrival == 0
        ]
        if found or len(rows) <= several:
            break
        several *= 4
    found.sort(key=lambda point: (point.number, point.generation, point.step))
    unnumbered = sum(point.number == 0 for point in found)
    return found[: limit + unnumbered]


def newest_number(conn: Connection, job_id: str) -> int:
    """The number of the point that arrived last; 0: none has, or there is no such job."""
    return conn.execute(_NEWEST_NUMBER, {"job": job_id}).scalar() or 0


def starts(conn: Connection, job_id: str) -> list[Start]:
    """Where each generation that reported points began, oldest first."""
    found: list[Start] = []
    reached = -1
    for generation, first, last in conn.execute(_SPANS, {"job": job_id}).all():
        at_first, at_last = (
            _unpack(conn.execute(_ONE_CHUNK, {"job": job_id, "of_generation": generation, "at": at}).scalar_one())
            for at in (first, last)
        )
        step = min(at_first)
        found.append(Start(generation, step, at_first[step].at, max(0, min(reached, max(at_last)) - step + 1)))
        reached = max(reached, *at_last)
    return found


def set_progress(conn: Connection, job_id: str, generation: int, at: datetime, progress: ReportedProgress) -> None:
    """Keep where this generation is, unless something newer is known of it."""
    key = {"job_id": job_id, "generation": generation, "at": at}
    told = {name: getattr(progress, name) for name in ("step", "total_steps", "values", "eta_s")}
    conn.execute(_PUT_PROGRESS.on(conn), {**key, **told})


def progress(conn: Connection, job_ids: Sequence[str]) -> dict[str, ProgressRow]:
    """Where each of these jobs is, for those that reported: by the newest generation that did."""
    if not job_ids:
        return {}
    return {row.job_id: row for row in all_of(ProgressRow, conn.execute(_PROGRESS, {"ids": list(job_ids)}))}


def progress_by_generation(conn: Connection, job_id: str) -> list[ProgressRow]:
    """How far each generation of the job came, for those that reported, oldest first."""
    return all_of(ProgressRow, conn.execute(_PROGRESS, {"ids": [job_id]}))


def _merge(kept: dict[int, Point], new: MetricPoint, number: int) -> bool:
    """Put a point to those of its chunk; False: it says nothing new."""
    before = kept.get(new.step)
    values = dict(new.values) if before is None else {**before.values, **new.values}
    if before is not None and (before.at, before.values) == (new.at, values):
        return False
    kept[new.step] = Point(new.at, values, number)
    return True


def _continues(packed: Mapping[str, Any], fresh: Sequence[MetricPoint]) -> bool:
    """Whether the points go behind those of the chunk, as they nearly always do."""
    steps = [packed["steps"][-1], *(point.step for point in fresh)]
    return "arrived" in packed and all(one < other for one, other in pairwise(steps))


def _appended(packed: Mapping[str, Any], fresh: Sequence[MetricPoint], first_number: int) -> dict[str, Any]:
    """The chunk with such points behind, without taking it apart: the same as `_merge` and `_pack` make of them."""
    length = len(packed["steps"])
    names = sorted({*packed["values"], *(name for point in fresh for name in point.values)})
    values = packed["values"]
    return {
        "steps": [*packed["steps"], *(point.step for point in fresh)],
        "at": [*packed["at"], *(point.at for point in fresh)],
        "arrived": [*packed["arrived"], *range(first_number, first_number + len(fresh))],
        "values": {
            name: [*(values.get(name) or [None] * length), *(point.values.get(name) for point in fresh)]
            for name in names
        },
    }


def _pack(points: Mapping[int, Point]) -> dict[str, Any]:
    """Columns, which is a third of the size of one object a step."""
    steps = sorted(points)
    names = sorted({name for point in points.values() for name in point.values})
    return {
        "steps": steps,
        "at": [points[step].at for step in steps],
        "arrived": [points[step].arrival for step in steps],
        "values": {name: [points[step].values.get(name) for step in steps] for name in names},
    }


def _unpack(packed: Mapping[str, Any]) -> dict[int, Point]:
    arrived = packed.get("arrived") or repeat(0, len(packed["steps"]))
    points = {
        step: Point(at, {}, number) for step, at, number in zip(packed["steps"], packed["at"], arrived, strict=True)
    }
    for name, column in packed["values"].items():
        for step, value in zip(packed["steps"], column, strict=True):
            if value is not None:
                points[step].values[name] = value
    return points


def _newest_of_each_step(generations: list[tuple[int, dict[str, Any]]]) -> tuple[list[int], dict[str, Any]]:
    """One chunk over all generations, oldest first: whose each step is, and the points as columns."""
    if len(generations) == 1:
        [(generation, packed)] = generations
        return [generation] * len(packed["steps"]), packed
    newest: dict[int, tuple[int, Point]] = {}
    for generation, packed in generations:
        newest.update((step, (generation, point)) for step, point in _unpack(packed).items())
    return [newest[step][0] for step in sorted(newest)], _pack({step: point for step, (_, point) in newest.items()})


def _add_columns(
    made: dict[str, Series],
    chunk: tuple[list[int], dict[str, Any]],
    names: Collection[str] | None,
    first: int,
    last: int,
) -> None:
    """Put the steps `first … last` of a chunk behind the series so far."""
    generations, packed = chunk
    part = slice(bisect_left(packed["steps"], first), bisect_right(packed["steps"], last))
    steps, at, generations = packed["steps"][part], packed["at"][part], generations[part]
    for name, column in packed["values"].items():
        values = column[part]
        known = [index for index, value in enumerate(values) if value is not None]
        if not known or (names is not None and name not in names):
            continue
        series = made.setdefault(name, Series(name))
        whole = len(known) == len(steps)
        series.steps += steps if whole else [steps[index] for index in known]
        series.at += at if whole else [at[index] for index in known]
        series.generations += generations if whole else [generations[index] for index in known]
        series.means += values if whole else [values[index] for index in known]


def _binned(points: Series, max_points: int | None) -> Series:
    """Bins hold equally many points, so that no bin is empty and the ends are kept."""
    count = len(points.steps)
    if max_points is None or count <= max_points:
        points.mins, points.maxs = list(points.means), list(points.means)
        return points
    made = Series(points.name, binned=True)
    for index in range(max_points):
        part = slice(index * count // max_points, (index + 1) * count // max_points)
        values = points.means[part]
        made.steps.append(points.steps[part.start])
        made.generations.append(points.generations[part.stop - 1])
        made.at.append(points.at[part.stop - 1])
        made.means.append(sum(values) / len(values))
        made.mins.append(min(values))
        made.maxs.append(max(values))
    return made
