"""Which stored bytes hold which lines of a job's output.

A line's number is its place in the order in which lines arrived, among those that were asked for. What has arrived
keeps its place, so that a number names a line for ever, and a reader that goes on behind it misses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from shunter_store.tables import jobs, log_chunks, log_streams, nodes
from sqlalchemy import ColumnElement, Connection, Row, Select, Table, and_, func, select


@dataclass(frozen=True, slots=True)
class Selection:
    """The output that was asked for; None: any."""

    job_id: str
    generation: int | None = None
    rank: int | None = None
    stream: str | None = None

    def of(self, table: Table) -> ColumnElement[bool]:
        """The condition on a table that has these columns."""
        wanted = {"generation": self.generation, "rank": self.rank, "stream": self.stream}
        return and_(
            table.c.job_id == self.job_id,
            *(table.c[name] == value for name, value in wanted.items() if value is not None),
        )


class StreamKey(NamedTuple):
    """One file of output on one node."""

    generation: int
    rank: int
    stream: str
    journal_id: str


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A stored piece of one stream. `first_line` is the number of its first line feed's line, from 1."""

    key: StreamKey
    offset: int
    length: int
    object: str
    lines: int
    first_line: int
    last_at: datetime


_CHUNK = [
    log_chunks.c[name]
    for name in ("generation", "rank", "stream", "journal_id", "offset", "length", "object", "lines", "last_at")
]
_ARRIVAL = tuple(log_chunks.c[name] for name in ("job_line", "generation", "rank", "stream", "journal_id", "offset"))
"""`job_line` orders all pieces that hold a line feed; the others only have to stay in order within their stream."""


def count_lines(conn: Connection, selection: Selection) -> int:
    """How many whole lines have arrived."""
    counted = select(func.coalesce(func.sum(log_streams.c.lines), 0)).where(selection.of(log_streams))
    return int(conn.execute(counted).scalar_one())


def chunks_from(conn: Connection, selection: Selection, first_line: int, count: int) -> list[PlacedChunk]:
    """The pieces that hold the lines `first_line … first_line + count - 1`, in order of arrival.

    Also those between them that hold no line feed, only a part of a line.
    """
    placed = _placed(selection).subquery()
    wanted = (
        select(placed)
        .where(placed.c.before + placed.c.lines >= first_line, placed.c.before < first_line + count - 1)
        .order_by(placed.c.place)
    )
    return [_chunk(row, int(row.before) + 1) for row in conn.execute(wanted)]


def unfinished_before(conn: Connection, job_id: str, chunk: PlacedChunk) -> list[PlacedChunk]:
    """The pieces, in order, that hold the beginning of a chunk's first line."""
    return _since_last_line_feed(conn, job_id, chunk.key, before_offset=chunk.offset)


def unfinished_at_end(conn: Connection, job_id: str, key: StreamKey) -> list[PlacedChunk]:
    """The pieces, in order, that hold the last line of a stream when no line feed ended it."""
    return _since_last_line_feed(conn, job_id, key, before_offset=None)


def streams_of(conn: Connection, selection: Selection) -> list[StreamKey]:
    """The files of output that were asked for, in a fixed order."""
    key = [log_chunks.c[name] for name in StreamKey._fields]
    rows = conn.execute(select(*key).where(selection.of(log_chunks)).distinct().order_by(*key))
    return [StreamKey(*row) for row in rows]


def bytes_of(conn: Connection, selection: Selection) -> list[PlacedChunk]:
    """Every piece of what was asked for, stream by stream."""
    order = (
        *(log_chunks.c[name] for name in ("generation", "rank", "stream")),
        log_chunks.c.first_line,
        log_chunks.c.offset,
    )
    return [_chunk(row, 0) for row in conn.execute(select(*_CHUNK).where(selection.of(log_chunks)).order_by(*order))]


def node_ranks(conn: Connection, job_id: str) -> dict[str, int]:
    """The node's place in the gang, by journal."""
    rows = conn.execute(select(nodes.c.journal_id, nodes.c.past_journals, nodes.c.rank).where(nodes.c.job_id == job_id))
    return {
        journal: row.rank for row in rows for journal in (row.journal_id, *row.past_journals) if journal is not None
    }


def released(conn: Connection, job_id: str) -> bool:
    """Whether no more output can come: every node is proven gone."""
    return conn.execute(select(jobs.c.released_at).where(jobs.c.id == job_id)).scalar() is not None


def _placed(selection: Selection) -> Select[tuple[object, ...]]:
    before = func.sum(log_chunks.c.lines).over(order_by=_ARRIVAL, rows=(None, 0)) - log_chunks.c.lines
    place = func.row_number().over(order_by=_ARRIVAL)
    return select(*_CHUNK, before.label("before"), place.label("place")).where(selection.of(log_chunks))


def _since_last_line_feed(
    conn: Connection, job_id: str, key: StreamKey, *, before_offset: int | None
) -> list[PlacedChunk]:
    query = (
        select(*_CHUNK)
        .where(log_chunks.c.job_id == job_id, *(log_chunks.c[name] == value for name, value in key._asdict().items()))
        .order_by(log_chunks.c.offset.desc())
    )
    if before_offset is not None:
        query = query.where(log_chunks.c.offset < before_offset)
    found: list[PlacedChunk] = []
    for row in conn.execute(query):
        found.append(_chunk(row, 0))
        if row.lines:
            break
    return found[::-1]


def _chunk(row: Row[tuple[object, ...]], first_line: int) -> PlacedChunk:
    key = StreamKey(row.generation, row.rank, row.stream, row.journal_id)
    return PlacedChunk(key, row.offset, row.length, row.object, row.lines, first_line, row.last_at)
