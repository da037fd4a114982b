"""Metric points and progress of many jobs at once: the same as `metrics.add_points` and `metrics.set_progress` for each
of them, in a few statements for all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shunter_schemas.node_sync import MetricPoint
from shunter_schemas.node_sync import Progress as ReportedProgress
from sqlalchemy import BigInteger, Connection, String, select, update

from shunter_store.report.metrics import STEPS_PER_CHUNK, merge_points
from shunter_store.sql.bulk_rows import ForRows, UpsertRows
from shunter_store.tables import jobs, metric_chunks
from shunter_store.tables import progress as progress_table


@dataclass(frozen=True, slots=True)
class Told:
    """What one job's node told."""

    job_id: str
    points: Mapping[int, Sequence[MetricPoint]]
    """By generation."""
    progress: tuple[int, datetime, ReportedProgress] | None
    """Generation, time, and where it is."""


_TAKE_NUMBERS = ForRows(
    {"job_id": String(40), "count": BigInteger()},
    lambda get: (
        update(jobs)
        .where(jobs.c.id == get("job_id"))
        .values(metric_seq=jobs.c.metric_seq + get("count"))
        .returning(jobs.c.id, jobs.c.metric_seq)
    ),
)
_CHUNKS = ForRows(
    {"job_id": String(40), "generation": BigInteger(), "chunk": BigInteger()},
    lambda get: select(
        metric_chunks.c.job_id,
        metric_chunks.c.generation,
        metric_chunks.c.chunk,
        metric_chunks.c.points,
        metric_chunks.c.first_arrival,
    ).where(
        metric_chunks.c.job_id == get("job_id"),
        metric_chunks.c.generation == get("generation"),
        metric_chunks.c.chunk == get("chunk"),
    ),
)
_PUT_CHUNKS = UpsertRows(
    metric_chunks,
    ("job_id", "generation", "chunk", "points", "first_arrival", "last_arrival"),
    ("job_id", "chunk", "generation"),
)
_PUT_PROGRESS = UpsertRows(
    progress_table,
    ("job_id", "generation", "at", "step", "total_steps", "values", "eta_s"),
    ("job_id", "generation"),
    where=lambda new: progress_table.c.at <= new.at,
)


def add_all(conn: Connection, told: Sequence[Told]) -> None:
    """Keep it all; every job at most once among `told`. A job that was deleted meanwhile is passed over."""
    ordered = sorted(told, key=lambda one: one.job_id)  # locks in the same order as everybody else's
    counts = {one.job_id: sum(map(len, one.points.values())) for one in ordered}
    rows = [{"job_id": job_id, "count": count} for job_id, count in counts.items()]
    newest: dict[str, int] = dict(_TAKE_NUMBERS.run(conn, rows))
    known = [one for one in ordered if one.job_id in newest]
    _add_points(conn, known, {job_id: number - counts[job_id] for job_id, number in newest.items()})
    _PUT_PROGRESS.run(conn, [_progress_row(one.job_id, *one.progress) for one in known if one.progress is not None])


def _add_points(conn: Connection, told: Sequence[Told], last_numbers: dict[str, int]) -> None:
    fresh: dict[tuple[str, int, int], list[MetricPoint]] = defaultdict(list)
    for one in told:
        for generation, points in one.points.items():
            for point in points:
                fresh[one.job_id, generation, point.step // STEPS_PER_CHUNK].append(point)
    names = ("job_id", "generation", "chunk")
    found = _CHUNKS.run(conn, [dict(zip(names, key, strict=True)) for key in fresh])
    kept = {(row.job_id, row.generation, row.chunk): row for row in found}
    rows: list[dict[str, Any]] = []
    for key, points in fresh.items():
        before = kept.get(key)
        first_number = last_numbers[key[0]] + 1
        last_numbers[key[0]] += len(points)
        merged = merge_points(None if before is None else before.points, points, first_number)
        if merged is not None:
            first = merged.first_arrival if before is None else before.first_arrival
            row = {"points": merged.packed, "first_arrival": first, "last_arrival": merged.last_arrival}
            rows.append(dict(zip(names, key, strict=True)) | row)
    _PUT_CHUNKS.run(conn, rows)


def _progress_row(job_id: str, generation: int, at: datetime, progress: ReportedProgress) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "generation": generation,
        "at": at.timestamp(),
        "step": progress.step,
        "total_steps": progress.total_steps,
        "values": progress.values,
        "eta_s": progress.eta_s,
    }
