"""Checkpoints: the parts that nodes uploaded, and the commit that makes them one. Resume and prune read here only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shunter_schemas.node_sync import CheckpointUploaded
from sqlalchemy import Connection, and_, bindparam, insert, or_, select, update

from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import PerDialect, db_now
from shunter_store.storage import garbage
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
    origin_job: str | None = None
    """The job that wrote it, if another one did; with `origin_generation` and `step` it names the same bytes there."""
    origin_generation: int | None = None

    @property
    def origin(self) -> tuple[str, int]:
        """The job and generation that wrote it."""
        if self.origin_job is None or self.origin_generation is None:
            return self.job_id, self.generation
        return self.origin_job, self.origin_generation

    @property
    def objects(self) -> list[str]:
        """Keys of its files."""
        return [str(entry["object"]) for entry in self.files]


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
_ALL_KEPT_FOR_GOOD = _ALL_KEPT.with_for_update()
_OF_JOB_EVER = select(*columns_of(CheckpointRow, checkpoints)).where(_OF_JOB)
_HOLDERS = (
    select(checkpoints.c.job_id, checkpoints.c.pruned_at)
    .where(
        checkpoints.c.step == bindparam("at_step"),
        or_(
            and_(
                checkpoints.c.job_id == bindparam("by_job"),
                checkpoints.c.generation == bindparam("by_generation"),
                checkpoints.c.origin_job.is_(None),
            ),
            and_(
                checkpoints.c.origin_job == bindparam("by_job"),
                checkpoints.c.origin_generation == bindparam("by_generation"),
            ),
        ),
    )
    .order_by(checkpoints.c.job_id)
    .with_for_update()
)
_BORROW = insert(checkpoints)
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


def prune(conn: Connection, row: CheckpointRow) -> None:
    """Never offer this one again; its bytes go once no other job holds it."""
    shared = _is_shared(conn, row)
    key = {"job": row.job_id, "of_generation": row.generation, "at_step": row.step}
    if conn.execute(_PRUNED, key).rowcount and not shared:
        garbage.put(conn, keys=row.objects)


def latest_for_good(conn: Connection, job_id: str) -> CheckpointRow | None:
    """`latest`, which nobody prunes until this transaction has ended."""
    kept = all_of(CheckpointRow, conn.execute(_ALL_KEPT_FOR_GOOD, {"job": job_id}))
    return kept[0] if kept else None


def borrow(conn: Connection, row: CheckpointRow, job_id: str) -> None:
    """Let another job begin with this checkpoint: it is that job's own of generation 0, with the same bytes."""
    job, generation = row.origin
    values = {
        "job_id": job_id,
        "generation": 0,
        "step": row.step,
        "files": row.files,
        "values": row.values,
        "size": row.size,
        "committed_at": row.committed_at,
        "origin_job": job,
        "origin_generation": generation,
    }
    conn.execute(_BORROW, values)


def let_go(conn: Connection, job_id: str) -> set[str]:
    """Give up all checkpoints of a job whose record goes; returns the objects below its folder that others hold.

    Those of other jobs that nobody else holds become garbage here; the caller sees to the job's own folder.
    """
    kept: set[str] = set()
    for row in all_of(CheckpointRow, conn.execute(_OF_JOB_EVER, {"job": job_id})):
        shared = _is_shared(conn, row)
        if row.origin_job is None and shared:
            kept.update(row.objects)
        elif row.origin_job is not None and row.pruned_at is None and not shared:
            garbage.put(conn, keys=row.objects)
    return kept


def _is_shared(conn: Connection, row: CheckpointRow) -> bool:
    """Whether another job holds it too. The rows stay locked: of two that let go at once, the second sees the first."""
    job, generation = row.origin
    holders = conn.execute(_HOLDERS, {"by_job": job, "by_generation": generation, "at_step": row.step}).all()
    return any(holder.job_id != row.job_id and holder.pruned_at is None for holder in holders)
