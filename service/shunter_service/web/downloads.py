"""Stored bytes as an answer, whole or in part."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple

from litestar import Response
from litestar.response import Stream
from litestar.status_codes import HTTP_200_OK, HTTP_206_PARTIAL_CONTENT, HTTP_304_NOT_MODIFIED
from shunter_store.storage.objects import ObjectStore

from shunter_service.context import Service
from shunter_service.web.answers import byte_range


class Piece(NamedTuple):
    """An object that is a part, or the whole, of what is downloaded."""

    key: str
    size: int


class Conditions(NamedTuple):
    """What the client asked for in headers."""

    range: str | None = None
    if_none_match: str | None = None
    if_range: str | None = None


def download(
    service: Service, pieces: Sequence[Piece], *, media_type: str, conditions: Conditions, tag: str | None = None
) -> Response[bytes] | Stream:
    """The pieces one after the other, or the range of them that was asked for; 304 when the client has them.

    Raises:
        ProblemError: 416.
    """
    headers = {"Accept-Ranges": "bytes", "X-Content-Type-Options": "nosniff"}
    if tag is not None:
        headers["ETag"] = f'"{tag}"'
        if conditions.if_none_match and headers["ETag"] in conditions.if_none_match:
            return Response(content=b"", status_code=HTTP_304_NOT_MODIFIED, headers=headers, media_type=media_type)
    size = sum(piece.size for piece in pieces)
    asked = conditions.range
    if conditions.if_range is not None and conditions.if_range != headers.get("ETag"):
        asked = None
    chosen = byte_range(asked, size)
    start, end = chosen or (0, size)
    if chosen:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - start)
    status = HTTP_206_PARTIAL_CONTENT if chosen else HTTP_200_OK
    chunks = _chunks(service.objects, pieces, start, end)
    return Stream(_sent(service, chunks), status_code=status, media_type=media_type, headers=headers)


async def _sent(service: Service, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    async for chunk in service.transfers.send(chunks):
        yield chunk


def _chunks(objects: ObjectStore, pieces: Sequence[Piece], start: int, end: int) -> Iterator[bytes]:
    at = 0
    for key, size in pieces:
        first, last = max(start - at, 0), min(end - at, size)
        if first < last:
            yield from objects.open_range(key, first, last)
        at += size
