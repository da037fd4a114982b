"""Pages of a job's output: lines from stored bytes, no more of them than fit an answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, cast

from shunter_schemas.api import LogLine
from shunter_store.errors import NotFound
from shunter_store.storage.objects import ObjectStore
from sqlalchemy import Connection

from shunter_service.output import log_index
from shunter_service.output.log_index import PlacedChunk, Selection, StreamKey
from shunter_service.output.log_text import LONGEST_LINE_BYTES, Needle, shown

ANSWER_BYTES: Final = 4 << 20
"""About the longest answer, one line more or less."""
_LINE_BYTES: Final = 200
"""Of what stands around a line's text, at most."""
_END_OF_A_LINE_BYTES: Final = 1 << 20
"""So much of the end of a very long line is looked at for what a terminal would have left of it."""


@dataclass(slots=True)
class Budget:
    """How much one answer may hold and cost. Something is always done, so that every answer gets on."""

    answer_bytes: int = ANSWER_BYTES
    read_bytes: int = 64 << 20
    until: float = field(default_factory=lambda: time.monotonic() + 2.0)

    @property
    def is_spent(self) -> bool:
        """Whether it is time to answer."""
        return self.answer_bytes <= 0 or self.read_bytes <= 0 or time.monotonic() > self.until


@dataclass(frozen=True, slots=True)
class Window:
    """Lines in a row: `first_line … first_line + count - 1`, or the last `count` ones when `first_line` is None."""

    first_line: int | None
    count: int


@dataclass(frozen=True, slots=True)
class PageIndex:
    """What has to be read for a page, found in one snapshot."""

    first_line: int
    count: int
    at_end: bool
    """Whether the last `count` lines are wanted, of which those in `endings` are some."""
    total: int
    chunks: list[PlacedChunk]
    beginnings: Mapping[int, list[PlacedChunk]]
    """By place in `chunks`: the pieces that hold the beginning of its first line, unless the one before of `chunks`
    that belongs to the same stream is it."""
    endings: list[tuple[StreamKey, list[PlacedChunk]]]
    """Of ended jobs, on the last page: pieces that may hold a last line without a line feed."""
    nodes: Mapping[str, int]
    ended: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in a window."""

    lines: list[LogLine]
    first_line: int
    next_line: int
    """Everything before it was looked at."""
    total: int
    ended: bool
    """Whether nothing comes behind `next_line`, ever."""


def find_page(conn: Connection, selection: Selection, window: Window) -> PageIndex:
    """Which stored pieces hold the lines of a window, or those at its beginning when they are very many."""
    total = log_index.count_lines(conn, selection)
    at_end = window.first_line is None
    first = max(1, total - window.count + 1) if window.first_line is None else window.first_line
    chunks = log_index.chunks_from(conn, selection, first, window.count) if first <= total and window.count else []
    reached = chunks[-1].first_line + chunks[-1].lines if chunks else total + 1
    ended = log_index.released(conn, selection.job_id)
    endings = []
    if ended and first + window.count > total and reached > total:
        keys = log_index.streams_of(conn, selection)
        endings = [(key, log_index.unfinished_at_end(conn, selection.job_id, key)) for key in keys]
    return PageIndex(
        first_line=first,
        count=window.count,
        at_end=at_end,
        total=total,
        chunks=chunks,
        beginnings=_beginnings(conn, selection.job_id, chunks),
        endings=endings,
        nodes=log_index.node_ranks(conn, selection.job_id),
        ended=ended,
    )


def read_page(objects: ObjectStore, index: PageIndex, budget: Budget, wanted: Needle | None = None) -> Found:
    """Read the lines of a page, or those that hold a text, as far as the budget goes. Blocks on the object store."""
    last_lines = _last_lines(objects, index)
    total = index.total + len(last_lines)
    first = max(index.first_line, total - index.count + 1) if index.at_end else index.first_line
    behind = first + index.count
    found: list[LogLine] = []
    following = first
    for line in _lines(objects, replace(index, first_line=first), last_lines, budget, wanted):
        if line.line >= behind:
            following = behind
            break
        if isinstance(line, _Nothing):
            following = max(following, line.line + 1)
            if budget.is_spent:
                break
            continue
        cost = cost_of(line)
        if found and cost > budget.answer_bytes:
            break
        budget.answer_bytes -= cost
        found.append(line)
        following = line.line + 1
    return Found(found, first, following, total, index.ended and following > total)


def cost_of(line: LogLine) -> int:
    """About how many bytes a line takes in an answer."""
    return len(line.text.encode()) + line.text.count('"') + line.text.count("\\") + _LINE_BYTES


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Lines up to this one were looked at."""

    line: int


def _beginnings(conn: Connection, job_id: str, chunks: list[PlacedChunk]) -> dict[int, list[PlacedChunk]]:
    ends: dict[StreamKey, int] = {}
    found = {}
    for place, chunk in enumerate(chunks):
        if ends.get(chunk.key) != chunk.offset:
            found[place] = log_index.unfinished_before(conn, job_id, chunk)
        ends[chunk.key] = chunk.end
    return found


def _lines(
    objects: ObjectStore, index: PageIndex, last_lines: list[LogLine], budget: Budget, wanted: Needle | None
) -> Iterator[LogLine | _Nothing]:
    """The lines from the first one on, and between them how far they were looked at."""
    rests: dict[StreamKey, bytes] = {}
    for place, chunk in enumerate(index.chunks):
        data = _bytes(objects, chunk)
        budget.read_bytes -= len(data)
        pieces = index.beginnings.get(place)
        beginning = rests.get(chunk.key, b"") if pieces is None else _beginning(objects, pieces)
        rests[chunk.key] = data[data.rfind(b"\n") + 1 :]
        # The count in the index gives the numbers; were the bytes to say otherwise, lines would only be cut or padded.
        before = max(0, index.first_line - chunk.first_line)
        for at, text in _texts(beginning + data, before, chunk.lines, wanted):
            yield _line(index, chunk, chunk.first_line + at, text)
        yield _Nothing(chunk.first_line + chunk.lines - 1)
    for line in last_lines:
        if line.line >= index.first_line and (wanted is None or wanted.is_in(line.text)):
            yield line
        yield _Nothing(line.line)


def _texts(data: bytes, first: int, last: int, wanted: Needle | None) -> Iterable[tuple[int, str]]:
    """Lines as they are shown, by their place in some bytes."""
    if wanted is not None:
        return wanted.lines(data, first, last)
    whole = data.split(b"\n")[:-1]
    whole += [b""] * (last - len(whole))
    return ((at, shown(whole[at])) for at in range(first, last))


def _last_lines(objects: ObjectStore, index: PageIndex) -> list[LogLine]:
    """Last lines that no line feed ended; they follow all others."""
    found: list[LogLine] = []
    for _, pieces in index.endings:
        rest = _beginning(objects, pieces)
        if rest:
            found.append(_line(index, pieces[-1], index.total + len(found) + 1, shown(rest)))
    return found


def _beginning(objects: ObjectStore, pieces: list[PlacedChunk]) -> bytes:
    """What follows the last line feed in some pieces that follow each other; of very much, the two ends."""
    if not pieces:
        return b""
    first, *others = pieces
    data = _bytes(objects, first)
    beginning = data[data.rfind(b"\n") + 1 :]
    if sum(piece.length for piece in others) <= 2 * _END_OF_A_LINE_BYTES:
        return beginning + b"".join(_bytes(objects, piece) for piece in others)
    for piece in others:
        if len(beginning) >= LONGEST_LINE_BYTES:
            break
        beginning += _bytes(objects, piece)
    ends: list[bytes] = []
    while sum(map(len, ends)) < _END_OF_A_LINE_BYTES and others:
        ends.insert(0, _bytes(objects, others.pop()))
    return beginning + b"".join(ends)


def _bytes(objects: ObjectStore, chunk: PlacedChunk) -> bytes:
    try:
        return b"".join(objects.open_range(chunk.object, 0, chunk.length))
    except NotFound:  # an operator removed it; its lines are shown as empty ones
        return b"\n" * chunk.lines


def _line(index: PageIndex, chunk: PlacedChunk, number: int, text: str) -> LogLine:
    key = chunk.key
    return LogLine.model_construct(  # a page holds thousands, of our own making
        line=number,
        at=chunk.last_at,
        generation=key.generation,
        node=index.nodes.get(key.journal_id, 0),
        rank=key.rank,
        stream=cast('Literal["stdout", "stderr", "setup"]', key.stream),
        text=text,
    )
