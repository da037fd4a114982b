"""`/v1/stream`: everything that a client follows, over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from typing import Annotated, cast

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import HeaderParameter, QueryParameter
from shunter_schemas.api import StreamPage
from shunter_store.job import job_changes

from shunter_service.access import AnyRequest
from shunter_service.context import Service
from shunter_service.streams import cursors, queries
from shunter_service.streams.following import follow_all, job_feed, topic_end, topic_item
from shunter_service.streams.jobs_feed import CatchingUp
from shunter_service.streams.tailer import Watch
from shunter_service.streams.topics import Topic, parse
from shunter_service.web.answers import raw
from shunter_service.web.sse import event_stream, wants_stream

Topics = Annotated[
    str,
    QueryParameter(
        min_length=1,
        max_length=4000,
        description="Up to 32, with commas between: `jobs` (new, changed and deleted jobs of the project, with their "
        "progress), `job:ID:events`, `job:ID:logs`, `job:ID:metrics`. `job:ID:logs@812` begins behind line 812; "
        "likewise behind an event's `seq` and the metrics' `next_after`.",
    ),
]
StreamCursor = Annotated[
    str | None,
    QueryParameter(
        max_length=cursors.LONGEST,
        description="Go on behind this place: the id of a stream's last message, or the `cursor` of a page. "
        "`Last-Event-ID` goes before it.",
    ),
]
LastPlace = Annotated[
    str | None,
    HeaderParameter(
        name="Last-Event-ID", max_length=cursors.LONGEST, description="The same, as browsers send it by themselves."
    ),
]


class StreamController(Controller):
    """A browser holds six connections to a service at most, so that one has to do."""

    path = "/v1/stream"
    tags = ["jobs"]

    @get(operation_id="Stream", opt={"streams": True})
    async def stream(
        self,
        request: AnyRequest,
        service: NamedDependency[Service],
        topics: Topics = "",
        cursor: StreamCursor = None,
        last_event_id: LastPlace = None,
    ) -> Response[StreamPage]:
        """What happens, topic by topic. With `Accept: text/event-stream` as it happens, until every topic has ended.

        Each message is a `StreamMessage`, and its id a place over all topics. A topic whose job does not exist, or
        is another project's, ends at once with `not_found`; the others go on. `jobs` never ends; which records were
        deleted it tells for a week: whoever was away for longer reads the list of jobs anew.
        """
        asked = parse(topics)
        place = last_event_id or cursor
        positions: Mapping[bytes, int] = {} if place is None else cursors.decode(place)
        project = request.user.project
        job_ids = sorted({topic.job_id for topic in asked if topic.job_id})
        own = await service.db.aread(lambda conn: queries.owned(conn, project, job_ids))
        for job_id in own:
            service.lookers.note(job_id)
        if wants_stream(request):
            stream = event_stream(request, follow_all(service, project, asked, own, positions))
            return cast("Response[StreamPage]", stream)
        return await _page(service, project, asked, own, positions)


async def _page(
    service: Service, project: str, topics: Sequence[Topic], own: Set[str], positions: Mapping[bytes, int]
) -> Response[StreamPage]:
    """A handful of messages of each topic."""
    told = await asyncio.gather(*(_look(service, project, topic, own, positions) for topic in topics))
    places = zip((cursors.key_of(topic.name) for topic in topics), (position for _, position, _ in told), strict=True)
    items = b",".join(message for messages, _, _ in told for message in messages)
    ended = b"true" if all(over for _, _, over in told) else b"false"
    cursor = cursors.encode(places).encode()
    return raw(b'{"items":[' + items + b'],"cursor":"' + cursor + b'","ended":' + ended + b"}", StreamPage)


async def _look(
    service: Service, project: str, topic: Topic, own: Set[str], positions: Mapping[bytes, int]
) -> tuple[list[bytes], int, bool]:
    """The messages of a topic, the position behind them, and whether it has ended."""
    if topic.kind == "jobs":
        position = positions.get(cursors.key_of(topic.name))
        if position is None:
            return [], int(await service.db.aread(job_changes.now) * 1e6), False
        batch = await CatchingUp(service, project, position).read()
        return [topic_item(topic, item) for item in batch.items], batch.position, False
    if topic.job_id not in own:
        return [topic_end(topic, "not_found")], 0, True
    feed = job_feed(service, Watch.unshared(), topic, positions)
    messages = [topic_item(topic, item) for item in await feed.read()]
    if feed.end is not None:
        messages.append(topic_end(topic, feed.end))
    return messages, feed.position, feed.end is not None
