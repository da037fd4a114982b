"""`/v1/jobs/{id}/metrics`: series over the steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, cast

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter
from shunter_schemas.api import MetricMark, MetricsAnswer, MetricSeries
from shunter_schemas.states import TERMINAL_STATES
from shunter_store.report import checkpoints, metrics
from shunter_store.report.metrics import Series
from shunter_store.sql.sqltypes import time_of
from sqlalchemy import Connection

from shunter_service.access import AnyRequest, own_job
from shunter_service.context import Service
from shunter_service.streams.feeds import PointFeed, columns
from shunter_service.streams.following import follow_one
from shunter_service.streams.queries import heads
from shunter_service.web.answers import shaped
from shunter_service.web.parameters import LARGEST, JobId, LastEventId, checked_id, last_seen
from shunter_service.web.sse import event_stream, wants_stream

Names = Annotated[
    list[str] | None, QueryParameter(name="name", max_items=100, description="Only these metrics; repeatable.")
]
FromStep = Annotated[int, QueryParameter(ge=0, le=LARGEST, description="The first step.")]
ToStep = Annotated[int | None, QueryParameter(ge=0, le=LARGEST, description="The last step.")]
MaxPoints = Annotated[
    int | None,
    QueryParameter(
        ge=1,
        le=100_000,
        description="Put the points of a series into at most so many bins. Without it points stand for themselves, as "
        "long as a series has no more than 10,000 of them in the range; a longer one comes in 10,000 bins.",
    ),
]
_UNASKED: Final = 10_000
"""The most points of a series that come without being asked for, so that an answer is bounded for the longest run."""

After = Annotated[
    int | None,
    QueryParameter(
        ge=0,
        le=LARGEST,
        description="Only points that arrived behind this number (`next_after` of the answer before), of all steps, "
        "not in bins, a page of them at a time.",
    ),
]
_PAGE = 1000


class MetricsController(Controller):
    """Over all attempts the newest value of a step wins."""

    path = "/v1/jobs/{job_id:str}/metrics"
    tags = ["jobs"]

    @get(operation_id="GetMetrics", opt={"streams": True})
    async def series(
        self,
        request: AnyRequest,
        job_id: JobId,
        service: NamedDependency[Service],
        names: Names = None,
        from_step: FromStep = 0,
        to_step: ToStep = None,
        max_points: MaxPoints = None,
        after: After = None,
        last_event_id: LastEventId = None,
    ) -> Response[MetricsAnswer]:
        """Metrics as columns; with `max_points` as bins of mean, min and max.

        `Accept: text/event-stream` gives points as they arrive (each message a `MetricsUpdate`), until no more can;
        `after` says behind which, and gives them as a page too.
        """
        checked_id("job", "job", job_id)
        service.lookers.note(job_id)
        await service.db.aread(lambda conn: own_job(conn, request.user, job_id))
        if wants_stream(request):
            seen = last_seen(last_event_id, after or 0)
            points = follow_one(service, job_id, lambda watch: PointFeed(service, watch, job_id, seen))
            return cast("Response[MetricsAnswer]", event_stream(request, points))
        if after is not None:
            return shaped(await service.db.aread(lambda conn: _arrived(conn, job_id, after, names)))
        span = _Span(from_step, to_step, max_points)
        return shaped(await service.db.aread(lambda conn: _curves(conn, job_id, names, span)))


@dataclass(frozen=True, slots=True)
class _Span:
    first: int
    last: int | None
    bins: int | None


def _curves(conn: Connection, job_id: str, names: list[str] | None, span: _Span) -> MetricsAnswer:
    bins = _UNASKED if span.bins is None else span.bins
    found = metrics.series(conn, job_id, names=names, from_step=span.first, to_step=span.last, max_points=bins)
    newest = metrics.newest_number(conn, job_id)
    return MetricsAnswer(
        series=tuple(_series(one, binned=span.bins is not None or one.binned) for one in found),
        marks=tuple(_marks(conn, job_id, span)),
        next_after=newest,
        ended=_has_ended(conn, job_id),
    )


def _arrived(conn: Connection, job_id: str, after: int, names: list[str] | None) -> MetricsAnswer:
    """A page of what arrived behind a number; of a repeated step the newest start's value comes last."""
    found = metrics.arrivals(conn, job_id, after, _PAGE)
    return MetricsAnswer(
        series=columns(found, names),
        next_after=max(found[-1].number, after) if found else after,
        ended=not found and _has_ended(conn, job_id),
    )


def _has_ended(conn: Connection, job_id: str) -> bool:
    head = heads(conn, [job_id]).get(job_id)
    return head is not None and head.state in TERMINAL_STATES


def _marks(conn: Connection, job_id: str, span: _Span) -> Iterator[MetricMark]:
    """The starts and checkpoints whose steps were asked for."""
    for start in metrics.starts(conn, job_id):
        if span.first <= start.step and (span.last is None or start.step <= span.last):
            yield MetricMark(
                step=start.step,
                at=time_of(start.at),
                kind="generation",
                generation=start.generation,
                repeated_steps=start.repeated_steps,
            )
    for row in reversed(checkpoints.page(conn, job_id)):
        if span.first <= row.step and (span.last is None or row.step <= span.last):
            yield MetricMark(step=row.step, at=row.committed_at, kind="checkpoint", generation=row.generation)


def _series(series: Series, *, binned: bool) -> MetricSeries:
    return MetricSeries(
        name=series.name,
        steps=tuple(series.steps),
        times_s=tuple(series.at),
        values=tuple(series.means),
        min=tuple(series.mins) if binned else None,
        max=tuple(series.maxs) if binned else None,
    )
