"""`/v1/jobs/{id}/logs`: output by line number, as pages, as text, as bytes, or as a stream."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import HeaderParameter, QueryParameter
from shunter_schemas.api import LogPage
from sqlalchemy import Connection

from shunter_service.access import AnyRequest, own_job
from shunter_service.context import Service
from shunter_service.output import log_index
from shunter_service.output.log_index import Selection
from shunter_service.output.log_reading import Asked, read
from shunter_service.output.log_text import Needle
from shunter_service.streams.feeds import LineFeed
from shunter_service.streams.following import follow_one
from shunter_service.web.answers import shaped
from shunter_service.web.downloads import Conditions, Piece, download
from shunter_service.web.parameters import LARGEST, JobId, LastEventId, checked_id, last_seen
from shunter_service.web.problems import bad_parameter
from shunter_service.web.sse import event_stream, wants_stream

_LARGEST_GENERATION = 2**31 - 1

Line = Annotated[int, QueryParameter(ge=1, le=LARGEST, description="The number of the first line.")]
LineLimit = Annotated[int, QueryParameter(ge=1, le=10_000, description="How many lines a page holds at most.")]
Tail = Annotated[
    int | None,
    QueryParameter(
        ge=0,
        le=10_000,
        description="The last lines, so many of them. A page holds fewer when they are long or many: go on at "
        "`before=first_line`.",
    ),
]
Before = Annotated[
    int | None, QueryParameter(ge=1, le=LARGEST, description="With `tail`: the last lines before this one.")
]
Search = Annotated[
    str | None,
    QueryParameter(
        min_length=1,
        max_length=1000,
        description="Only lines that hold this text; lines keep their numbers. A page may hold none and yet not be the "
        "last: go on at `next_line`, with `tail` at `before=first_line`.",
    ),
]
Case = Annotated[
    Literal["insensitive", "sensitive"], QueryParameter(description="With `q`: whether capital letters count.")
]
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
        before: Before = None,
        limit: LineLimit = 1000,
        q: Search = None,
        case: Case = "insensitive",
        range_: Range = None,
        last_event_id: LastEventId = None,
    ) -> Response[LogPage]:
        """Lines of output of all ranks in the order in which they arrived, or of some.

        A page ends early when it holds 4 MiB, or has read or searched (`q`) for 2 s: `next_line` says where to go on.
        With `tail` it always reaches the end (or `before`), and begins late instead: go on at `before=first_line`.
        `Accept: text/plain` gives the text; with `rank` and `stream` the exact bytes, of which `Range` takes a part.
        `Accept: text/event-stream` gives lines as they come, until no more can.
        """
        checked_id("job", "job", job_id)
        if before is not None and tail is None:
            raise bad_parameter("before", "goes with `tail`: the last lines before this one")
        selection = Selection(job_id, generation, rank, stream)
        needle = None if q is None else Needle(q, case_counts=case == "sensitive")
        service.lookers.note(job_id)
        await service.db.aread(lambda conn: own_job(conn, request.user, job_id))
        if wants_stream(request):
            seen, which = last_seen(last_event_id, line - 1), (selection, q, case)
            lines = follow_one(service, job_id, lambda watch: LineFeed(service, watch, selection, seen, needle, which))
            return cast("Response[LogPage]", event_stream(request, lines))
        asked = Asked(line, tail, before, limit, needle)
        if not _wants_text(request):
            return shaped(await read(service, selection, asked))
        if tail is not None or rank is None or stream is None or needle is not None:
            return _as_text(await read(service, selection, asked))
        return await _exact(service, selection, range_)


def _as_text(page: LogPage) -> Response[LogPage]:
    text = "".join(f"{line.text}\n" for line in page.items)
    headers = {"X-Next-Line": str(page.next_line), "X-Lines-Total": str(page.lines_total)}
    answer = Response(content=text.encode(), media_type="text/plain; charset=utf-8", headers=headers)
    return cast("Response[LogPage]", answer)


async def _exact(service: Service, selection: Selection, range_: str | None) -> Response[LogPage]:
    def find(conn: Connection) -> list[Piece]:
        return [Piece(chunk.object, chunk.length) for chunk in log_index.bytes_of(conn, selection)]

    pieces = await service.db.aread(find)
    answer = download(service, pieces, media_type="text/plain; charset=utf-8", conditions=Conditions(range_))
    return cast("Response[LogPage]", answer)


def _wants_text(request: AnyRequest) -> bool:
    accept = request.headers.get("accept", "")
    return "text/plain" in accept and "application/json" not in accept
