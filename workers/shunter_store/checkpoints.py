"""Checkpoints: the parts that nodes uploaded, and the commit that makes them one. Resume and prune read here only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shunter_schemas.node_sync import CheckpointUploaded
from sqlalchemy import Connection, bindparam, select, update

from shunter_store.rows import all_of, columns_of
from shunter_store.sqltypes import PerDialect, db_now
from shunter_store.tables import checkpoint_parts, checkpoints, jobs


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A committed checkpoint. `files` are `node_sync.FileEntry` as JSON, each with the `node_rank` it came from."""

    job_id: str
    generation: int
    step: int
    files: list[dict[str, Any]]
    values: dict[str, float]
    size: int
    committed_at: datetime
    pruned_at: datetime | None


_OF_JOB = checkpoints.c.job_id == bindparam("job")
_ADD_PART = PerDialect(lambda insert: insert(checkpoint_parts).on_conflict_do_nothing())
_PARTS = (
    select(checkpoint_parts.c.node_rank, checkpoint_parts.c.files, checkpoint_parts.c["values"])
    .where(
        checkpoint_parts.c.job_id == bindparam("job"),
        checkpoint_parts.c.generation == bindparam("of_generation"),
        checkpoint_parts.c.step == bindparam("at_step"),
    )
    .order_by(checkpoint_parts.c.node_rank)
)
_GENERATION = (
    select(jobs.c.generation, jobs.c.released_at).where(jobs.c.id == bindparam("job")).with_for_update(key_share=True)
)
_COMMIT = PerDialect(
    lambda insert: (
        insert(checkpoints).values(committed_at=db_now()).on_conflict_do_nothing().returning(checkpoints.c.step)
    )
)
_NEWEST = (checkpoints.c.generation.desc(), checkpoints.c.step.desc())
_KEPT = select(*columns_of(CheckpointRow, checkpoints)).where(_OF_JOB, checkpoints.c.pruned_at.is_(None))
_LATEST = _KEPT.order_by(*_NEWEST).limit(1)
_ALL_KEPT = _KEPT.order_by(*_NEWEST)
_PAGE = select(*columns_of(CheckpointRow, checkpoints)).where(_OF_JOB).order_by(*_NEWEST).limit(bindparam("limit"))
_PRUNED = (
    update(checkpoints)
    .where(
        _OF_JOB,
        checkpoints.c.generation == bindparam("of_generation"),
        checkpoints.c.step == bindparam("at_step"),
        checkpoints.c.pruned_at.is_(None),
    )
    .values(pruned_at=db_now())
)


def add_part(conn: Connection, job_id: str, generation: int, part: CheckpointUploaded, *, num_nodes: int) -> bool:
    """Keep one node's part of a checkpoint; True: this made it whole and it is committed now.

    It is committed when every node's part is there *and* the generation is the job's current one: what an older
    generation still uploads can never be resumed from.
    """
    row = {
        "job_id": job_id,
        "generation": generation,
        "step": part.step,
        "node_rank": part.node_rank,
        "files": [entry.model_dump() for entry in part.files],
        "values": part.values,
    }
    conn.execute(_ADD_PART.on(conn), row)
    current = conn.execute(_GENERATION, {"job": job_id}).one_or_none()
    if current is None or current.generation != generation or current.released_at is not None:
        return False
    key = {"job": job_id, "of_generation": generation, "at_step": part.step}
    parts = conn.execute(_PARTS, key).all()
    if not set(range(num_nodes)) <= {row.node_rank for row in parts}:
        return False
    files = [{**entry, "node_rank": row.node_rank} for row in parts for entry in row.files]
    whole = {
        "job_id": job_id,
        "generation": generation,
        "step": part.step,
        "files": files,
        "values": {name: value for row in reversed(parts) for name, value in row.values.items()},
        "size": sum(entry["size"] for entry in files),
    }
    return conn.execute(_COMMIT.on(conn), whole).scalar() is not None


def latest(conn: Connection, job_id: str) -> CheckpointRow | None:
    """The one to resume from: of the newest generation that committed any, the highest step."""
    row = conn.execute(_LATEST, {"job": job_id}).one_or_none()
    return None if row is None else CheckpointRow(*row)


def page(conn: Connection, job_id: str, *, limit: int = 1000) -> list[CheckpointRow]:
    """Committed checkpoints, newest first, also those whose bytes are pruned."""
    return all_of(CheckpointRow, conn.execute(_PAGE, {"job": job_id, "limit": limit}))


def to_prune(conn: Connection, job_id: str, keep: int, *, best: str | None = None) -> list[CheckpointRow]:
    """What may be deleted: all but the newest `keep` and the one with the lowest value of `best`; never the latest."""
    kept = all_of(CheckpointRow, conn.execute(_ALL_KEPT, {"job": job_id}))
    spare = kept[max(keep, 1) :]
    rated = [row for row in kept if best is not None and best in row.values]
    lowest = min(rated, key=lambda row: row.values[best or ""], default=None)
    return [row for row in spare if row is not lowest]


def mark_pruned(conn: Connection, job_id: str, generation: int, step: int) -> None:
    """Never offer this one again. Mark first, delete the objects after: a crash between leaves bytes, not a lie."""
    conn.execute(_PRUNED, {"job": job_id, "of_generation": generation, "at_step": step})
