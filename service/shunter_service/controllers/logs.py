"""`/v1/jobs/{id}/logs`: output by line number, as pages, as text, as bytes, or as a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Literal, cast

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import HeaderParameter, QueryParameter
from shunter_schemas.api import LogPage
from sqlalchemy import Connection

from shunter_service import log_index
from shunter_service.access import AnyRequest, own_job
from shunter_service.answers import encode, shaped
from shunter_service.context import Service
from shunter_service.downloads import Conditions, Piece, download
from shunter_service.log_index import Selection
from shunter_service.log_pages import find_page, read_page
from shunter_service.parameters import LARGEST, JobId, LastEventId, checked_id, last_seen
from shunter_service.sse import KEEP_ALIVE, OPENING, event_stream, message, wants_stream

_FOLLOW_EVERY_S = 0.5
_FOLLOW_LINES = 1000
_LARGEST_GENERATION = 2**31 - 1

Line = Annotated[int, QueryParameter(ge=1, le=LARGEST, description="The number of the first line.")]
LineLimit = Annotated[int, QueryParameter(ge=1, le=10_000, description="How many lines a page holds at most.")]
Tail = Annotated[int | None, QueryParameter(ge=0, le=10_000, description="The last lines, so many of them.")]
RankFilter = Annotated[
    int | None, QueryParameter(name="rank", ge=-1, le=2**31 - 1, description="Only this rank; -1: the nodes' set-up.")
]
StreamFilter = Annotated[
    Literal["stdout", "stderr", "setup"] | None, QueryParameter(name="stream", description="Only this stream.")
]
GenerationFilter = Annotated[
    int | None, QueryParameter(ge=0, le=_LARGEST_GENERATION, description="Only this start of the gang.")
]
Range = Annotated[
    str | None,
    HeaderParameter(name="Range", description="With `Accept: text/plain`, `rank` and `stream`: a part of it."),
]


class LogsController(Controller):
    """Lines keep their numbers: what arrives later comes behind what has arrived."""

    path = "/v1/jobs/{job_id:str}/logs"
    tags = ["jobs"]

    @get(operation_id="GetLogs", opt={"streams": True, "text": True})
    async def logs(
        self,
        request: AnyRequest,
        job_id: JobId,
        service: NamedDependency[Service],
        rank: RankFilter = None,
        stream: StreamFilter = None,
        generation: GenerationFilter = None,
        line: Line = 1,
        tail: Tail = None,
        limit: LineLimit = 1000,
        range_: Range = None,
        last_event_id: LastEventId = None,
    ) -> Response[LogPage]:
        """Lines of output of all ranks in the order in which they arrived, or of some.

        `Accept: text/plain` gives the text; with `rank` and `stream` the exact bytes, of which `Range` takes a part.
        `Accept: text/event-stream` gives lines as they come, until no more can.
        """
        checked_id("job", "job", job_id)
        selection = Selection(job_id, generation, rank, stream)
        service.lookers.note(job_id)
        await service.db.aread(lambda conn: own_job(conn, request.user, job_id))
        if wants_stream(request):
            first = last_seen(last_event_id, line - 1) + 1
            return cast("Response[LogPage]", event_stream(_follow(service, selection, first)))
        if not _wants_text(request):
            return shaped(await _page(service, selection, line, tail, limit))
        if tail is not None or rank is None or stream is None:
            return _as_text(await _page(service, selection, line, tail, limit))
        return await _exact(service, selection, range_)


async def _page(service: Service, selection: Selection, line: int, tail: int | None, limit: int) -> LogPage:
    index = await service.db.aread(lambda conn: find_page(conn, selection, line=line, tail=tail, limit=limit))
    return await service.transfers.run(lambda: read_page(service.objects, index))


def _as_text(page: LogPage) -> Response[LogPage]:
    text = "".join(f"{line.text}\n" for line in page.items)
    answer = Response(content=text.encode(), media_type="text/plain; charset=utf-8")
    return cast("Response[LogPage]", answer)


async def _exact(service: Service, selection: Selection, range_: str | None) -> Response[LogPage]:
    def read(conn: Connection) -> list[Piece]:
        return [Piece(chunk.object, chunk.length) for chunk in log_index.bytes_of(conn, selection)]

    pieces = await service.db.aread(read)
    answer = download(service, pieces, media_type="text/plain; charset=utf-8", conditions=Conditions(range_))
    return cast("Response[LogPage]", answer)


async def _follow(service: Service, selection: Selection, line: int) -> AsyncIterator[bytes]:
    """Lines from `line` on, comments while there are none, and the end when no more can come."""
    yield OPENING
    spoke_at = time.monotonic()
    while not service.tailer.closing:
        page = await _page(service, selection, line, None, _FOLLOW_LINES)
        for item in page.items:
            yield message(encode(item).decode(), id_=item.line, event="line")
        line = page.next_line
        if page.ended:
            return
        if page.items:
            spoke_at = time.monotonic()
            continue
        service.lookers.note(selection.job_id)
        if time.monotonic() - spoke_at > service.settings.keep_alive_s:
            yield KEEP_ALIVE
            spoke_at = time.monotonic()
        await asyncio.sleep(_FOLLOW_EVERY_S)


def _wants_text(request: AnyRequest) -> bool:
    accept = request.headers.get("accept", "")
    return "text/plain" in accept and "application/json" not in accept
