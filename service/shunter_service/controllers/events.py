"""`/v1/jobs/{id}/events`: the history of a job, as pages or as a stream."""

from __future__ import annotations

from typing import cast

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from shunter_schemas.api import EventPage
from shunter_schemas.states import TERMINAL_STATES
from shunter_store.installation.api_keys import ApiKey
from shunter_store.job import events
from sqlalchemy import Connection

from shunter_service.access import AnyRequest, own_job
from shunter_service.context import Service
from shunter_service.showing.views import event_view
from shunter_service.streams.feeds import EventFeed
from shunter_service.streams.following import follow_one
from shunter_service.web.answers import shaped
from shunter_service.web.parameters import After, JobId, LastEventId, Limit, checked_id, last_seen
from shunter_service.web.sse import event_stream, wants_stream


class EventsController(Controller):
    """Events are numbered from 1 without a gap, so that a reader knows that it missed nothing."""

    path = "/v1/jobs/{job_id:str}/events"
    tags = ["jobs"]

    @get(operation_id="ListEvents", opt={"streams": True})
    async def page(
        self,
        request: AnyRequest,
        job_id: JobId,
        service: NamedDependency[Service],
        after: After = 0,
        limit: Limit = 100,
        last_event_id: LastEventId = None,
    ) -> Response[EventPage]:
        """Events in order. With `Accept: text/event-stream` they come as they happen, until the job has ended."""
        checked_id("job", "job", job_id)
        page = await _read(service, request.user, job_id, after, limit)
        service.lookers.note(job_id)
        if not wants_stream(request):
            return shaped(page)
        seen = last_seen(last_event_id, after)
        stream = follow_one(service, job_id, lambda watch: EventFeed(service, watch, job_id, seen))
        return cast("Response[EventPage]", event_stream(request, stream))


async def _read(service: Service, key: ApiKey, job_id: str, after: int, limit: int) -> EventPage:
    def read(conn: Connection) -> EventPage:
        job = own_job(conn, key, job_id)
        rows = events.page(conn, job_id, after, limit)
        last = rows[-1].seq if rows else after
        return EventPage(
            items=tuple(event_view(row) for row in rows),
            next_after=last,
            ended=job.state in TERMINAL_STATES and last >= job.event_seq,
        )

    return await service.db.aread(read)
