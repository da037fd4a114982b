"""Which stored bytes hold which lines of a job's output.

A line's number is its place in the order in which lines arrived, among those that were asked for. What has arrived
keeps its place, so that a number names a line for ever, and a reader that goes on behind it misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any, Final, NamedTuple

from shunter_store.tables import jobs, log_chunks, log_streams, nodes
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    ScalarSelect,
    Select,
    Table,
    and_,
    bindparam,
    func,
    literal,
    select,
    union_all,
)

MOST_CHUNKS: Final = 1000
"""So many pieces are looked up at once."""
_FIRST_CHUNKS: Final = 32
_FEW_STREAMS: Final = 16
"""So many streams are merged rather than picked from those of the whole job."""
_SEVERAL_STREAMS: Final = 256
"""A line is searched for in so many streams rather than counted up to."""
_PIECES_OF_A_LINE: Final = 2000
"""What lies further back does not count to a line that is still not at its end."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The output that was asked for; None: any."""

    job_id: str
    generation: int | None = None
    rank: int | None = None
    stream: str | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return self.generation is None and self.rank is None and self.stream is None

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

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.offset + self.length


_CHUNK = [
    log_chunks.c[name]
    for name in ("generation", "rank", "stream", "journal_id", "offset", "length", "object", "lines", "last_at")
]
_ARRIVAL = tuple(log_chunks.c[name] for name in ("job_line", "generation", "rank", "stream", "journal_id", "offset"))
"""`job_line` orders all pieces that hold a line feed; the others only have to stay in order within their stream."""
_PROBES: Final = 15
"""So many places are looked at in one query: 1,000,000 lines are narrowed down to one in five."""


def count_lines(conn: Connection, selection: Selection) -> int:
    """How many whole lines have arrived."""
    counted = select(func.coalesce(func.sum(log_streams.c.lines), 0)).where(selection.of(log_streams))
    return int(conn.execute(counted).scalar_one())


def chunks_from(conn: Connection, selection: Selection, first_line: int, count: int) -> list[PlacedChunk]:
    """The pieces that hold line feeds of the lines `first_line … first_line + count - 1`, in order of arrival.

    At most `MOST_CHUNKS`, so that they may end before the last of the lines. It costs the same however many lines come
    before, except for a part of the output of some hundred ranks.
    """
    streams = [] if selection.is_everything else _streams(conn, selection)
    if len(streams) > _SEVERAL_STREAMS:
        return _counted(conn, selection, first_line, count)
    arrival, before = _last_before(conn, selection, streams, first_line)
    found: list[PlacedChunk] = []
    for limit in (_FIRST_CHUNKS, MOST_CHUNKS):
        rows = conn.execute(_since(selection, streams, arrival, min(limit, count))).all()
        found = list(_numbered(rows, before))
        if len(rows) < limit or (found and found[-1].first_line + found[-1].lines >= first_line + count):
            break
    return [
        chunk
        for chunk in found
        if chunk.first_line + chunk.lines > first_line and chunk.first_line < first_line + count
    ]


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


def _streams(conn: Connection, selection: Selection) -> list[tuple[int, int, str]]:
    columns = (log_streams.c.generation, log_streams.c.rank, log_streams.c.stream)
    few = select(*columns).where(selection.of(log_streams)).limit(_SEVERAL_STREAMS + 1)
    return [(generation, rank, stream) for generation, rank, stream in conn.execute(few)]


def _last_before(
    conn: Connection, selection: Selection, streams: Sequence[tuple[int, int, str]], line: int
) -> tuple[int, int]:
    """The last `job_line` at which no more than the lines before this one had arrived, and how many had."""
    if selection.is_everything:
        newest = select(func.max(log_chunks.c.job_line)).where(
            log_chunks.c.job_id == selection.job_id, log_chunks.c.job_line < line
        )
        arrival = conn.execute(newest).scalar() or 0
        return arrival, arrival
    if len(streams) == 1:
        found = conn.execute(
            select(log_chunks.c.job_line, log_chunks.c.first_line)
            .where(Selection(selection.job_id, *streams[0]).of(log_chunks), log_chunks.c.first_line < line)
            .order_by(log_chunks.c.first_line.desc(), log_chunks.c.job_line.desc())
            .limit(1)
        ).first()
        return (found[0], found[1]) if found is not None else (0, 0)
    return _narrowed_down(conn, selection, line)


def _narrowed_down(conn: Connection, selection: Selection, line: int) -> tuple[int, int]:
    names = [f"at_{number}" for number in range(_PROBES)]
    counted = select(*(_lines_before(selection, name) for name in names))
    low, high = 0, conn.execute(select(jobs.c.log_lines).where(jobs.c.id == selection.job_id)).scalar() or 0
    before = 0
    while low < high:
        places = [low + 1 + (high - low - 1) * number // (_PROBES - 1) for number in range(_PROBES)]
        lines = conn.execute(counted, dict(zip(names, places, strict=True))).one()
        for place, arrived in zip(places, lines, strict=True):
            if arrived < line:
                low, before = place, int(arrived)
            else:
                high = place - 1
                break
    return low, before


def _lines_before(selection: Selection, arrival: str) -> ScalarSelect[Any]:
    """How many lines of a selection had arrived at a `job_line`: where each of its streams was then, added up."""
    first_since = (
        select(log_chunks.c.first_line)
        .where(
            *(log_chunks.c[name] == log_streams.c[name] for name in ("job_id", "generation", "rank", "stream")),
            log_chunks.c.job_line >= bindparam(arrival, type_=BigInteger),
        )
        .order_by(log_chunks.c.job_line)
        .limit(1)
        .correlate(log_streams)
        .scalar_subquery()
    )
    lines = func.coalesce(func.sum(func.coalesce(first_since, log_streams.c.lines)), 0)
    return select(lines).where(selection.of(log_streams)).scalar_subquery()


def _since(
    selection: Selection, streams: list[tuple[int, int, str]], arrival: int, limit: int
) -> Select[tuple[object, ...]]:
    """The pieces with line feeds that arrived then or later, in order."""
    later = (log_chunks.c.job_line >= arrival, log_chunks.c.lines > 0)
    columns = (*_CHUNK, log_chunks.c.job_line)
    if not streams or len(streams) > _FEW_STREAMS:
        return select(*columns).where(selection.of(log_chunks), *later).order_by(*_ARRIVAL).limit(limit)
    parts = [
        select(*columns)
        .where(Selection(selection.job_id, *stream).of(log_chunks), *later)
        .order_by(log_chunks.c.job_line)
        .limit(limit)
        .subquery()
        for stream in streams
    ]
    merged = union_all(*(select(part) for part in parts)).subquery()
    return select(merged).order_by(*(merged.c[column.name] for column in _ARRIVAL)).limit(limit)


def _counted(conn: Connection, selection: Selection, first_line: int, count: int) -> list[PlacedChunk]:
    """`chunks_from` for a part that consists of very many streams: all pieces before are added up."""
    before = func.sum(log_chunks.c.lines).over(order_by=_ARRIVAL, rows=(None, 0)) - log_chunks.c.lines
    place = func.row_number().over(order_by=_ARRIVAL)
    placed = (
        select(*_CHUNK, before.label("before"), place.label("place"))
        .where(selection.of(log_chunks), log_chunks.c.lines > 0)
        .subquery()
    )
    wanted = (
        select(placed)
        .where(placed.c.before + placed.c.lines >= first_line, placed.c.before < literal(first_line + count - 1))
        .order_by(placed.c.place)
        .limit(MOST_CHUNKS)
    )
    return [_chunk(row, int(row.before) + 1) for row in conn.execute(wanted)]


def _numbered(rows: Sequence[Row[Any]], before: int) -> Iterator[PlacedChunk]:
    """Pieces that follow each other, behind so many lines."""
    starts = accumulate((row.lines for row in rows), initial=before)
    return (_chunk(row, start + 1) for row, start in zip(rows, starts, strict=False))


def _since_last_line_feed(
    conn: Connection, job_id: str, key: StreamKey, *, before_offset: int | None
) -> list[PlacedChunk]:
    query = (
        select(*_CHUNK)
        .where(log_chunks.c.job_id == job_id, *(log_chunks.c[name] == value for name, value in key._asdict().items()))
        .order_by(log_chunks.c.offset.desc())
        .limit(_PIECES_OF_A_LINE)
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
