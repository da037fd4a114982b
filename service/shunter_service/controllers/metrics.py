"""`/v1/jobs/{id}/metrics`: series over the steps."""

from __future__ import annotations

from typing import Annotated, Literal

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter
from shunter_schemas.api import MetricMark, MetricsAnswer, MetricSeries
from shunter_store import checkpoints, metrics
from shunter_store.metrics import Series
from sqlalchemy import Connection

from shunter_service.access import AnyRequest, own_job
from shunter_service.answers import shaped
from shunter_service.context import Service
from shunter_service.parameters import LARGEST, JobId, checked_id

Names = Annotated[
    list[str] | None, QueryParameter(name="name", max_items=100, description="Only these metrics; repeatable.")
]
FromStep = Annotated[int, QueryParameter(ge=0, le=LARGEST, description="The first step.")]
ToStep = Annotated[int | None, QueryParameter(ge=0, le=LARGEST, description="The last step.")]
MaxPoints = Annotated[
    int | None, QueryParameter(ge=1, le=100_000, description="Put the points of a series into at most so many bins.")
]


class MetricsController(Controller):
    """Over all attempts the newest value of a step wins."""

    path = "/v1/jobs/{job_id:str}/metrics"
    tags = ["jobs"]

    @get(operation_id="GetMetrics")
    async def series(
        self,
        request: AnyRequest,
        job_id: JobId,
        service: NamedDependency[Service],
        names: Names = None,
        from_step: FromStep = 0,
        to_step: ToStep = None,
        max_points: MaxPoints = None,
    ) -> Response[MetricsAnswer]:
        """Metrics as columns; with `max_points` as bins of mean, min and max."""
        checked_id("job", "job", job_id)
        service.lookers.note(job_id)

        def read(conn: Connection) -> MetricsAnswer:
            own_job(conn, request.user, job_id)
            found = metrics.series(
                conn, job_id, names=names, from_step=from_step, to_step=to_step, max_points=max_points
            )
            saved = checkpoints.page(conn, job_id)
            return MetricsAnswer(
                series=tuple(_series(one, binned=max_points is not None) for one in found),
                marks=(
                    *_generations(found),
                    *(_mark(row.step, "checkpoint", row.generation) for row in reversed(saved)),
                ),
            )

        return shaped(await service.db.aread(read))


def _series(series: Series, *, binned: bool) -> MetricSeries:
    return MetricSeries(
        name=series.name,
        steps=tuple(series.steps),
        times_s=tuple(series.at),
        values=tuple(series.means),
        min=tuple(series.mins) if binned else None,
        max=tuple(series.maxs) if binned else None,
    )


def _generations(found: list[Series]) -> list[MetricMark]:
    """The first step that each start of the gang reported."""
    first: dict[int, int] = {}
    for series in found:
        for step, generation in zip(series.steps, series.generations, strict=True):
            first[generation] = min(step, first.get(generation, step))
    return [_mark(step, "generation", generation) for generation, step in sorted(first.items())]


def _mark(step: int, kind: Literal["generation", "checkpoint"], generation: int) -> MetricMark:
    return MetricMark(step=step, kind=kind, generation=generation)
