"""`/v1/jobs`: submit, list, read, cancel."""

from __future__ import annotations

import time
from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.di import NamedDependency
from litestar.params import HeaderParameter, QueryParameter
from shunter_schemas.api import Job, JobPage
from shunter_schemas.states import State
from shunter_store import events, job_lists, ledger, metrics, wishes
from shunter_store.api_keys import ApiKey
from sqlalchemy import Connection

from shunter_service import submission
from shunter_service.access import AnyRequest, own_job
from shunter_service.answers import encode, entity_tag, raw, shaped, unless_known
from shunter_service.auth import WRITE
from shunter_service.bodies import job_document
from shunter_service.context import Service
from shunter_service.cursors import encode_cursor, newest_first
from shunter_service.parameters import LARGEST, Cursor, JobId, Limit, checked_id
from shunter_service.problems import bad_parameter
from shunter_service.views import job_view, summary_view

IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Makes a repetition harmless: the same key and body get the same answer for at least a day.",
    ),
]
IfNoneMatch = Annotated[
    str | None,
    HeaderParameter(name="If-None-Match", description="An `ETag` that the client holds: 304 if it is current."),
]
States = Annotated[
    list[State] | None, QueryParameter(name="state", max_items=9, description="Only jobs in one of these states.")
]
Label = Annotated[
    list[str] | None,
    QueryParameter(
        name="label", max_items=32, description="Only jobs that carry this label, as `key=value`; repeatable."
    ),
]
NameFilter = Annotated[str | None, QueryParameter(max_length=63, description="Only jobs of exactly this name.")]
WaitS = Annotated[
    float, QueryParameter(ge=0, le=60, description="With `after_revision`: hold the answer back until the job changes.")
]
AfterRevision = Annotated[
    int | None, QueryParameter(ge=0, le=LARGEST, description="With `wait_s`: the revision that the client holds.")
]


class JobsController(Controller):
    """Jobs of the key's project; those of others do not exist."""

    path = "/v1/jobs"
    tags = ["jobs"]

    @post(operation_id="CreateJob", status_code=201, opt={"scope": WRITE})
    async def create(
        self,
        request: AnyRequest,
        service: NamedDependency[Service],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[Job]:
        """Accept a job. It is durable, and queued rather than started: poll it, or follow its events."""
        body = await job_document(request, service.settings.max_document_bytes)
        stored, replayed = await submission.submit(service, request.user, body, idempotency_key)
        headers = stored.headers | ({"Idempotent-Replayed": "true"} if replayed else {})
        return raw(stored.body.encode(), Job, status=stored.status, headers=headers)

    @get(operation_id="ListJobs")
    async def page(
        self,
        request: AnyRequest,
        service: NamedDependency[Service],
        limit: Limit = 50,
        cursor: Cursor = None,
        states: States = None,
        label: Label = None,
        name: NameFilter = None,
    ) -> Response[JobPage]:
        """Jobs, newest first, without totals: the cost of a page does not grow with its depth."""
        before, labels = newest_first(cursor), _labels(label or [])
        if name is not None and "\x00" in name:
            raise bad_parameter("name", "holds a character that no name has")

        def read(conn: Connection) -> JobPage:
            where = job_lists.JobFilter(states=states or (), name=name, labels=tuple(labels.items()))
            rows = job_lists.page(conn, project=request.user.project, where=where, before=before, limit=limit + 1)
            progress = metrics.progress(conn, [row.id for row in rows[:limit]])
            more = rows[limit - 1] if len(rows) > limit else None
            return JobPage(
                items=tuple(summary_view(row, progress.get(row.id)) for row in rows[:limit]),
                next_cursor=encode_cursor(more.created_at.timestamp(), more.id) if more else None,
            )

        return shaped(await service.db.aread(read))

    @get("/{job_id:str}", operation_id="GetJob")
    async def one(
        self,
        request: AnyRequest,
        job_id: JobId,
        service: NamedDependency[Service],
        wait_s: WaitS = 0.0,
        after_revision: AfterRevision = None,
        if_none_match: IfNoneMatch = None,
    ) -> Response[Job]:
        """The job. With `wait_s` and `after_revision` the answer waits for a newer revision (long poll)."""
        checked_id("job", "job", job_id)
        service.lookers.note(job_id)
        job = await read_job(service, request.user, job_id)
        if wait_s and after_revision is not None and job.revision <= after_revision:
            job = await _wait_for_change(service, request.user, job, after_revision, wait_s)
        return unless_known(tagged(job), if_none_match)

    @post("/{job_id:str}/cancel", operation_id="CancelJob", status_code=202, opt={"scope": WRITE})
    async def cancel(self, request: AnyRequest, job_id: JobId, service: NamedDependency[Service]) -> Response[Job]:
        """End the job, with grace for a last checkpoint. Safe to repeat; 409 when it succeeded or failed before."""
        checked_id("job", "job", job_id)
        key = request.user

        def write(conn: Connection) -> None:
            own_job(conn, key, job_id)
            wishes.request_cancel(conn, job_id, by=key.name)

        await service.db.awrite(write)
        return tagged(await read_job(service, key, job_id), status=202)


async def read_job(service: Service, key: ApiKey, job_id: str) -> Job:
    """The whole job, from one snapshot."""

    def read(conn: Connection) -> Job:
        row = own_job(conn, key, job_id)
        return job_view(
            row,
            progress=metrics.progress(conn, [job_id]).get(job_id),
            nodes=ledger.of_job(conn, job_id),
            moves=events.transitions(conn, job_id),
            cost_usd=ledger.ledger_cost(conn, job_id),
        )

    return await service.db.aread(read)


def tagged(job: Job, status: int = 200) -> Response[Job]:
    """The job with its `ETag`."""
    body = encode(job)
    return raw(body, Job, status=status, headers={"ETag": entity_tag(job.revision, body)})


async def _wait_for_change(service: Service, key: ApiKey, job: Job, after_revision: int, wait_s: float) -> Job:
    deadline = time.monotonic() + wait_s
    with service.tailer.watch(job.id) as watch:
        while job.revision <= after_revision and not service.tailer.closing:
            change = watch.next_change()
            job = await read_job(service, key, job.id)
            left_s = deadline - time.monotonic()
            if job.revision > after_revision or left_s <= 0 or not await service.tailer.wait(change, left_s):
                break
            service.lookers.note(job.id)
    return job


def _labels(given: list[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not key or not separator or "\x00" in text or len(text) > 200:
            raise bad_parameter("label", "write it as key=value")
        if labels.setdefault(key, value) != value:
            raise bad_parameter("label", f"`{key}` is asked for with two values; no job has both")
    return labels
