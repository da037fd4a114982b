"""Pages of a job's output: lines from stored bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal, cast

from shunter_schemas.api import LogLine, LogPage
from shunter_store.errors import NotFound
from shunter_store.objects import ObjectStore
from sqlalchemy import Connection

from shunter_service import log_index
from shunter_service.log_index import PlacedChunk, Selection, StreamKey

_LONGEST_LINE_BYTES = 64 << 10
_CONTROLS = dict.fromkeys([*range(0x20), 0x7F], "\N{REPLACEMENT CHARACTER}") | {0x09: "\t"}


@dataclass(frozen=True, slots=True)
class PageIndex:
    """What has to be read for a page, found in one snapshot."""

    first_line: int
    limit: int
    at_end: bool
    """Whether the last `limit` lines are wanted rather than those from `first_line` on."""
    total: int
    chunks: list[PlacedChunk]
    beginnings: Mapping[StreamKey, list[PlacedChunk]]
    """By stream: the pieces before its first chunk that hold the beginning of that chunk's first line."""
    endings: list[tuple[StreamKey, list[PlacedChunk]]]
    """Of ended jobs, on the last page: pieces that may hold a last line without a line feed."""
    nodes: Mapping[str, int]
    ended: bool


def find_page(conn: Connection, selection: Selection, *, line: int, tail: int | None, limit: int) -> PageIndex:
    """Which stored pieces hold the lines from `line` on, or the last `tail` ones."""
    total = log_index.count_lines(conn, selection)
    first = max(1, total - tail + 1) if tail is not None else line
    count = limit if tail is None else tail
    chunks = log_index.chunks_from(conn, selection, first, count) if first <= total else []
    beginnings: dict[StreamKey, list[PlacedChunk]] = {}
    for chunk in chunks:
        if chunk.key not in beginnings:
            beginnings[chunk.key] = log_index.unfinished_before(conn, selection.job_id, chunk)
    ended = log_index.released(conn, selection.job_id)
    endings = []
    if ended and first + count > total:
        keys = log_index.streams_of(conn, selection)
        endings = [(key, log_index.unfinished_at_end(conn, selection.job_id, key)) for key in keys]
    return PageIndex(
        first_line=first,
        limit=count,
        at_end=tail is not None,
        total=total,
        chunks=chunks,
        beginnings=beginnings,
        endings=endings,
        nodes=log_index.node_ranks(conn, selection.job_id),
        ended=ended,
    )


def read_page(objects: ObjectStore, index: PageIndex) -> LogPage:
    """Read the lines of a page. Blocks on the object store."""
    last_lines = _last_lines(objects, index)
    found = [*islice(_whole_lines(objects, index), index.limit), *last_lines]
    found = [line for line in found if line.line >= index.first_line]
    lines = found[len(found) - min(index.limit, len(found)) :] if index.at_end else found[: index.limit]
    total = index.total + len(last_lines)
    following = lines[-1].line + 1 if lines else index.first_line
    return LogPage(items=tuple(lines), lines_total=total, next_line=following, ended=index.ended and following > total)


def _whole_lines(objects: ObjectStore, index: PageIndex) -> Iterator[LogLine]:
    """From the first line that is wanted on; a piece may hold 100,000 short lines before it."""
    begun: dict[StreamKey, bytes] = {}
    for chunk in index.chunks:
        beginning = begun.get(chunk.key)
        if beginning is None:
            beginning = _after_last_line_feed(_bytes(objects, index.beginnings[chunk.key]))
        *whole, rest = (beginning + _bytes(objects, [chunk])).split(b"\n")
        begun[chunk.key] = rest
        # The count in the index gives the numbers; were the bytes to say otherwise, lines would only be cut or padded.
        whole = [*whole[: chunk.lines], *[b""] * (chunk.lines - len(whole))]
        before = max(0, index.first_line - chunk.first_line)
        for number, text in enumerate(whole[before:], chunk.first_line + before):
            yield _line(index, chunk, number, text)


def _last_lines(objects: ObjectStore, index: PageIndex) -> list[LogLine]:
    """Last lines that no line feed ended; they follow all others."""
    found: list[LogLine] = []
    for _, chunks in index.endings:
        rest = _after_last_line_feed(_bytes(objects, chunks))
        if rest:
            found.append(_line(index, chunks[-1], index.total + len(found) + 1, rest))
    return found


def _bytes(objects: ObjectStore, chunks: Iterable[PlacedChunk]) -> bytes:
    parts = []
    for chunk in chunks:
        try:
            parts.append(b"".join(objects.open_range(chunk.object, 0, chunk.length)))
        except NotFound:  # an operator removed it; its lines are shown as empty ones
            parts.append(b"\n" * chunk.lines)
    return b"".join(parts)


def _after_last_line_feed(data: bytes) -> bytes:
    return data.rpartition(b"\n")[2]


def _line(index: PageIndex, chunk: PlacedChunk, number: int, text: bytes) -> LogLine:
    key = chunk.key
    return LogLine(
        line=number,
        at=chunk.last_at,
        generation=key.generation,
        node=index.nodes.get(key.journal_id, 0),
        rank=key.rank,
        stream=cast('Literal["stdout", "stderr", "setup"]', key.stream),
        text=_shown(text),
    )


def _shown(text: bytes) -> str:
    """A line as a terminal would leave it (a progress bar's last state), with nothing in it that steers a terminal."""
    kept = text.rstrip(b"\r").rpartition(b"\r")[2][:_LONGEST_LINE_BYTES]
    return kept.decode("utf-8", "replace").translate(_CONTROLS)
