"""The index of logs: which bytes of which stream lie in which object, and at which line they begin."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shunter_schemas.node_sync import LogChunk
from sqlalchemy import Connection, bindparam, insert, select, update

from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import PerDialect, time_of
from shunter_store.tables import jobs, log_chunks, log_streams


@dataclass(frozen=True, slots=True)
class LogChunkRow:
    """Bytes of one stream. Line numbers count line feeds from 0 within (generation, rank, stream)."""

    job_id: str
    generation: int
    rank: int
    stream: str
    first_line: int
    lines: int
    journal_id: str
    offset: int
    length: int
    object: str
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class LogStreamRow:
    """One stream of one rank in one generation, as far as it was uploaded."""

    job_id: str
    generation: int
    rank: int
    stream: str
    lines: int
    bytes: int
    last_at: datetime


ALL_LINES: Final = -1
"""`after_line` of a reader that begins at the beginning."""


def _upsert_stream(insert: Any) -> Any:
    statement = insert(log_streams)
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["job_id", "generation", "rank", "stream"],
        set_={
            "lines": log_streams.c.lines + new.lines,
            "bytes": log_streams.c.bytes + new.bytes,
            "last_at": new.last_at,
        },
    ).returning(log_streams.c.lines)


_OF_STREAM = (
    log_chunks.c.job_id == bindparam("job"),
    log_chunks.c.generation == bindparam("of_generation"),
    log_chunks.c.rank == bindparam("of_rank"),
    log_chunks.c.stream == bindparam("of_stream"),
)
_KNOWN = select(log_chunks.c.offset).where(
    *_OF_STREAM, log_chunks.c.journal_id == bindparam("journal"), log_chunks.c.offset == bindparam("at")
)
_GROW = PerDialect(_upsert_stream)
_TAKE_LINES = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(log_lines=jobs.c.log_lines + bindparam("count"))
    .returning(jobs.c.log_lines)
)
_INSERT = insert(log_chunks)
_CHUNKS = (
    select(*columns_of(LogChunkRow, log_chunks))
    .where(*_OF_STREAM, log_chunks.c.first_line + log_chunks.c.lines > bindparam("after"))
    .order_by(log_chunks.c.first_line, log_chunks.c.offset)
)
_LINES = select(log_streams.c.lines).where(
    log_streams.c.job_id == bindparam("job"),
    log_streams.c.generation == bindparam("of_generation"),
    log_streams.c.rank == bindparam("of_rank"),
    log_streams.c.stream == bindparam("of_stream"),
)
_STREAMS = (
    select(*columns_of(LogStreamRow, log_streams))
    .where(log_streams.c.job_id == bindparam("job"))
    .order_by(log_streams.c.generation, log_streams.c.rank, log_streams.c.stream)
)


def add_chunk(conn: Connection, job_id: str, generation: int, journal_id: str, chunk: LogChunk) -> bool:
    """Know a chunk whose object is stored. False: it was known already, by (stream, journal, offset)."""
    key = {"job": job_id, "of_generation": generation, "of_rank": chunk.rank, "of_stream": chunk.stream}
    if conn.execute(_KNOWN, {**key, "journal": journal_id, "at": chunk.offset}).scalar() is not None:
        return False
    last_at = time_of(chunk.last_at)
    row: dict[str, Any] = {
        "job_id": job_id,
        "generation": generation,
        "rank": chunk.rank,
        "stream": chunk.stream,
        "last_at": last_at,
        "lines": chunk.lines,
    }
    lines = conn.execute(_GROW.on(conn), {**row, "bytes": chunk.length}).scalar_one()
    # The job's row stays locked until the transaction ends, so that the order of numbers is the order of commits.
    of_job = conn.execute(_TAKE_LINES, {"job": job_id, "count": chunk.lines}).scalar_one()
    more = {
        "journal_id": journal_id,
        "job_line": of_job - chunk.lines,
        "first_line": lines - chunk.lines,
        "offset": chunk.offset,
        "length": chunk.length,
        "object": chunk.object,
        "first_at": time_of(chunk.first_at),
    }
    conn.execute(_INSERT, {**row, **more})
    return True


def chunks(  # noqa: PLR0913 - the key of a stream, by keyword
    conn: Connection,
    job_id: str,
    *,
    generation: int,
    rank: int,
    stream: str,
    after_line: int = ALL_LINES,
    tail: int | None = None,
) -> list[LogChunkRow]:
    """The chunks that hold lines with a number above `after_line`, or the last `tail` lines, in their order.

    The first chunk may begin with earlier lines, and a chunk may end within a line: count from its `first_line`.
    """
    key = {"job": job_id, "of_generation": generation, "of_rank": rank, "of_stream": stream}
    if tail is not None:
        after_line = (conn.execute(_LINES, key).scalar() or 0) - tail - 1
    return all_of(LogChunkRow, conn.execute(_CHUNKS, {**key, "after": after_line}))


def streams(conn: Connection, job_id: str) -> list[LogStreamRow]:
    """Every stream of the job, by generation, rank and name."""
    return all_of(LogStreamRow, conn.execute(_STREAMS, {"job": job_id}))
