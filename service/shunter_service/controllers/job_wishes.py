"""`/v1/jobs/{id}/…` with POST: what users ask of jobs. A wish is durable when the answer comes; steps obey it soon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from litestar import Controller, Response, post
from litestar.di import NamedDependency
from litestar.params import HeaderParameter
from shunter_schemas.api import CancelledJobs, CancelRequest, Job, MoveRequest, RetryRequest
from shunter_store.job import standings, wishes
from shunter_store.job.job_lists import EVERY_JOB
from shunter_store.job.jobs import JobRow
from sqlalchemy import Connection

from shunter_service.accepting import moving, submission
from shunter_service.accepting.moving import can_resume, runs
from shunter_service.access import AnyRequest, own_job
from shunter_service.auth import WRITE
from shunter_service.context import Service
from shunter_service.job_reading import tag
from shunter_service.showing.views import job_view
from shunter_service.web import filters
from shunter_service.web.answers import asked_revisions, encode
from shunter_service.web.bodies import json_body, optional_json, parsed
from shunter_service.web.parameters import IdempotencyKey, JobId, checked_id
from shunter_service.web.problems import ProblemError
from shunter_service.web.repeating import Asked, Done, once, sent

Wish = Callable[[Connection, JobRow, str], JobRow]
"""Records it for the job, in the name of a key."""
IfMatch = Annotated[
    str | None,
    HeaderParameter(name="If-Match", description="The `ETag` of the job as the client saw it: 412 if it changed."),
]


class JobWishesController(Controller):
    """Repeating a wish changes nothing; one that the job's state does not allow is a 409."""

    path = "/v1/jobs"
    tags = ["jobs"]

    @post("/cancel", operation_id="CancelJobs", status_code=202, opt={"scope": WRITE})
    async def cancel_many(
        self, request: AnyRequest, service: NamedDependency[Service], idempotency_key: IdempotencyKey = None
    ) -> Response[CancelledJobs]:
        """End every job that fits the filters and has not ended. At least one filter is needed."""
        body = await json_body(request, service.settings.max_document_bytes)
        where = filters.from_request(parsed(body, CancelRequest))
        if where == EVERY_JOB:
            raise ProblemError("invalid_request", "give at least one filter; `state` alone names all jobs that live")
        key = request.user

        def write(conn: Connection) -> Done:
            ids, more = wishes.cancel_many(conn, project=key.project, where=where, by=key.name)
            return Done(202, encode(CancelledJobs(ids=tuple(ids), more=more)), {})

        asked = Asked(key, "/v1/jobs/cancel", idempotency_key, body)
        return sent(await once(service, asked, write), CancelledJobs)

    @post("/{job_id:str}/cancel", operation_id="CancelJob", status_code=202, opt={"scope": WRITE})
    async def cancel(
        self,
        request: AnyRequest,
        job_id: JobId,
        service: NamedDependency[Service],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[Job]:
        """End the job, with grace for a last checkpoint. Safe to repeat; 409 when it succeeded or failed before."""
        return await _wish(request, service, job_id, idempotency_key, _cancel)

    @post("/{job_id:str}/pause", operation_id="PauseJob", status_code=202, opt={"scope": WRITE})
    async def pause(
        self,
        request: AnyRequest,
        job_id: JobId,
        service: NamedDependency[Service],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[Job]:
        """Checkpoint the job and let its nodes go. It rests in `queued`, at no cost, until it is resumed."""
        return await _wish(request, service, job_id, idempotency_key, _pause)

    @post("/{job_id:str}/resume", operation_id="ResumeJob", status_code=202, opt={"scope": WRITE})
    async def resume(
        self,
        request: AnyRequest,
        job_id: JobId,
        service: NamedDependency[Service],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[Job]:
        """Let a paused job go on from its last checkpoint, as soon as there is room for it."""
        return await _wish(request, service, job_id, idempotency_key, _resume)

    @post("/{job_id:str}/checkpoint", operation_id="CheckpointJob", status_code=202, opt={"scope": WRITE})
    async def checkpoint(
        self,
        request: AnyRequest,
        job_id: JobId,
        service: NamedDependency[Service],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[Job]:
        """Have a running training write a checkpoint now and go on. The event `checkpoint.committed` tells of it."""
        return await _wish(request, service, job_id, idempotency_key, _checkpoint)

    @post("/{job_id:str}/retry", operation_id="RetryJob", status_code=201, opt={"scope": WRITE})
    async def retry(
        self,
        request: AnyRequest,
        job_id: JobId,
        service: NamedDependency[Service],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[Job]:
        """Take an ended job up again: a new job from the same document, from its last checkpoint if there is one."""
        checked_id("job", "job", job_id)
        body = await optional_json(request, service.settings.max_document_bytes)
        wanted = parsed(body or b"{}", RetryRequest)
        asked = Asked(request.user, f"/v1/jobs/{job_id}/retry", idempotency_key, body)
        return sent(await submission.retry(service, asked, job_id, wanted), Job)

    @post("/{job_id:str}/move", operation_id="MoveJob", status_code=202, opt={"scope": WRITE})
    async def move(
        self,
        request: AnyRequest,
        job_id: JobId,
        service: NamedDependency[Service],
        if_match: IfMatch = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Response[Job]:
        """Checkpoint the job and let it go on under another strategy, on other resources, or elsewhere.

        It stays the same job, with its steps and its curve. A change of strategy alone keeps its nodes.
        """
        checked_id("job", "job", job_id)
        body = await json_body(request, service.settings.max_document_bytes)
        wanted = parsed(body, MoveRequest)
        asked = Asked(request.user, f"/v1/jobs/{job_id}/move", idempotency_key, body)
        revisions = None if if_match is None else asked_revisions(if_match)
        return sent(await moving.move(service, asked, job_id, wanted, revisions), Job)


async def _wish(
    request: AnyRequest, service: Service, job_id: str, idempotency_key: str | None, wish: Wish
) -> Response[Job]:
    checked_id("job", "job", job_id)
    asked = Asked(request.user, request.scope["path"], idempotency_key)

    def write(conn: Connection) -> Done:
        row = wish(conn, own_job(conn, asked.by, job_id), asked.by.name)
        standing = standings.of_row(conn, row)
        return Done(202, encode(job_view(standing)), {"ETag": tag(standing)})

    return sent(await once(service, asked, write), Job)


def _cancel(conn: Connection, job: JobRow, by: str) -> JobRow:
    return wishes.request_cancel(conn, job.id, by=by)


def _pause(conn: Connection, job: JobRow, by: str) -> JobRow:
    if runs(job) and not can_resume(job):
        raise ProblemError(
            "not_resumable",
            "the document does not say how the program's checkpoints are recognised (`workload.checkpoint`): a pause "
            "would lose what it did; cancel it, and retry it from the start",
        )
    return wishes.request_pause(conn, job.id, by=by)


def _resume(conn: Connection, job: JobRow, by: str) -> JobRow:
    return wishes.request_resume(conn, job.id, by=by)


def _checkpoint(conn: Connection, job: JobRow, by: str) -> JobRow:
    if job.spec["workload"]["kind"] != "training":
        raise ProblemError(
            "checkpoint_not_supported",
            "a script decides itself when it writes checkpoints: nothing in its document says what it could be sent",
        )
    return wishes.request_checkpoint(conn, job.id, by=by)
