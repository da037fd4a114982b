"""`/v1/jobs`: submit, list, count, read, change, delete. What users ask of a job otherwise is `job_wishes`."""

from __future__ import annotations

import time
from typing import Annotated

from litestar import Controller, Response, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import HeaderParameter, QueryParameter
from shunter_schemas.api import Job, JobCounts, JobDocuments, JobPage, JobPatch
from shunter_schemas.states import State
from shunter_store.installation.api_keys import ApiKey
from shunter_store.job import deletion, documents, job_lists, standings, wishes
from shunter_store.job.lifecycle import is_terminal
from shunter_store.job.standings import Standing
from sqlalchemy import Connection

from shunter_service.accepting import submission
from shunter_service.access import AnyRequest, own_job
from shunter_service.auth import WRITE
from shunter_service.context import Service
from shunter_service.job_reading import tag
from shunter_service.showing.views import documents_view, job_view, page_json
from shunter_service.web import filters
from shunter_service.web.answers import asked_revisions, encode, is_known, raw, shaped, unchanged
from shunter_service.web.bodies import PATCHES, json_body, parsed
from shunter_service.web.cursors import encode_cursor, newest_first
from shunter_service.web.parameters import LARGEST, Cursor, IdempotencyKey, JobId, Limit, checked_id
from shunter_service.web.problems import ProblemError, not_found
from shunter_service.web.repeating import Asked, sent

IfNoneMatch = Annotated[
    str | None,
    HeaderParameter(name="If-None-Match", description="An `ETag` that the client holds: 304 if it is current."),
]
IfMatch = Annotated[
    str | None,
    HeaderParameter(
        name="If-Match",
        description="Required: the `ETag` of the job as the client saw it, or `*`. Progress alone does not outdate it.",
    ),
]
States = Annotated[
    list[State] | None, QueryParameter(name="state", max_items=9, description="Only jobs in one of these states.")
]
Label = Annotated[
    list[str] | None,
    QueryParameter(
        name="label",
        max_items=32,
        description="Only jobs that carry this label: `key=value`, or `key` with any value; repeatable.",
    ),
]
NameFilter = Annotated[str | None, QueryParameter(description="Only jobs of exactly this name.")]
NamePrefix = Annotated[str | None, QueryParameter(description="Only jobs whose names begin so.")]
CreatedBy = Annotated[str | None, QueryParameter(description="Only jobs that this key submitted.")]
Provider = Annotated[str | None, QueryParameter(description="Only jobs on this provider instance.")]
Commit = Annotated[
    str | None, QueryParameter(description="Only jobs whose source is this commit; 7 digits of it are enough.")
]
CreatedAfter = Annotated[str | None, QueryParameter(description="Only jobs accepted after this moment (RFC 3339).")]
CreatedBefore = Annotated[str | None, QueryParameter(description="Only jobs accepted before this moment (RFC 3339).")]
WaitS = Annotated[
    float,
    QueryParameter(
        ge=0,
        le=60,
        description="Hold the answer back until the job changes: with `after_revision` until its revision moves, "
        "with `If-None-Match` until anything does, progress too.",
    ),
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
        body = await json_body(request, service.settings.max_document_bytes)
        asked = Asked(request.user, submission.PATH, idempotency_key, body)
        return sent(await submission.submit(service, asked), Job)

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
        name_prefix: NamePrefix = None,
        created_by: CreatedBy = None,
        provider: Provider = None,
        commit: Commit = None,
        created_after: CreatedAfter = None,
        created_before: CreatedBefore = None,
    ) -> Response[JobPage]:
        """Jobs that fit every filter, newest first, without totals: the cost of a page does not grow with its depth."""
        before = newest_first(cursor)
        where = filters.from_query(
            state=states,
            label=label,
            name=name,
            name_prefix=name_prefix,
            created_by=created_by,
            provider=provider,
            commit=commit,
            created_after=created_after,
            created_before=created_before,
        )

        def read(conn: Connection) -> bytes:
            lines = job_lists.page(conn, project=request.user.project, where=where, before=before, limit=limit + 1)
            shown = lines[:limit]
            more = encode_cursor(shown[-1].created_at.timestamp(), shown[-1].id) if len(lines) > limit else None
            return page_json(shown, job_lists.steps_of(conn, [line.id for line in shown]), more)

        return raw(await service.db.aread(read), JobPage)

    @get("/counts", operation_id="CountJobs")
    async def counts(self, request: AnyRequest, service: NamedDependency[Service]) -> Response[JobCounts]:
        """How many jobs of the project are in each state."""
        states, paused = await service.counter.ask(request.user.project)
        return shaped(JobCounts(states=states, paused=paused, total=sum(states.values())))

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
        """The job. With `wait_s` the answer waits for a change (long poll)."""
        checked_id("job", "job", job_id)
        standing = await _read(service, request.user, job_id)
        if not is_terminal(standing.row.state):
            service.lookers.note(job_id)
        if wait_s and after_revision is not None:
            standing = await _wait(service, request.user, standing, _Seen(wait_s, revision=after_revision))
        elif wait_s and if_none_match is not None:
            standing = await _wait(service, request.user, standing, _Seen(wait_s, tags=if_none_match))
        known = is_known(tag(standing), if_none_match)
        return unchanged(tag(standing), Job) if known else _tagged(standing)

    @get("/{job_id:str}/documents", operation_id="ListDocuments")
    async def documents(
        self, request: AnyRequest, job_id: JobId, service: NamedDependency[Service]
    ) -> Response[JobDocuments]:
        """Every version of the job's document: a move makes a new one, and what ran before stays to be seen."""
        checked_id("job", "job", job_id)

        def read(conn: Connection) -> JobDocuments:
            row = own_job(conn, request.user, job_id)
            return documents_view(row, documents.replaced(conn, job_id))

        return shaped(await service.db.aread(read))

    @patch("/{job_id:str}", operation_id="UpdateJob", opt={"scope": WRITE})
    async def change(
        self, request: AnyRequest, job_id: JobId, service: NamedDependency[Service], if_match: IfMatch = None
    ) -> Response[Job]:
        """Change labels, priority or limits, as a merge patch; limits hold at once, also for a job that runs."""
        checked_id("job", "job", job_id)
        if if_match is None:
            raise ProblemError("if_match_required", "send `If-Match` with the `ETag` of the job as you saw it, or `*`")
        key, revisions = request.user, asked_revisions(if_match)
        wanted = parsed(await json_body(request, service.settings.max_document_bytes, PATCHES), JobPatch)

        def write(conn: Connection) -> Standing:
            own_job(conn, key, job_id)
            return standings.of_row(conn, wishes.patch(conn, job_id, wanted, by=key.name, revisions=revisions))

        return _tagged(await service.db.awrite(write))

    @delete("/{job_id:str}", operation_id="DeleteJob", status_code=204, opt={"scope": WRITE})
    async def forget(self, request: AnyRequest, job_id: JobId, service: NamedDependency[Service]) -> None:
        """Delete the record of an ended job, with events, logs, metrics and files. What it cost stays in the ledger."""
        checked_id("job", "job", job_id)

        def write(conn: Connection) -> None:
            own_job(conn, request.user, job_id)
            deletion.delete(conn, job_id)

        await service.db.awrite(write)


class _Seen:
    """What the client holds, and how long it waits for something else."""

    def __init__(self, wait_s: float, *, revision: int | None = None, tags: str | None = None) -> None:
        self.deadline = time.monotonic() + wait_s
        self.revision = revision
        self._tags = tags

    def still_is(self, standing: Standing) -> bool:
        """Whether nothing new is there for the client."""
        if self.revision is not None:
            return standing.row.revision <= self.revision
        return is_known(tag(standing), self._tags)


async def _read(service: Service, key: ApiKey, job_id: str) -> Standing:
    standing = await service.reader.ask(job_id)
    if standing is None or standing.row.project != key.project:
        raise not_found("job", job_id)
    return standing


def _tagged(standing: Standing) -> Response[Job]:
    return raw(encode(job_view(standing)), Job, headers={"ETag": tag(standing)})


async def _wait(service: Service, key: ApiKey, standing: Standing, seen: _Seen) -> Standing:
    job_id = standing.row.id
    with service.tailer.watch(job_id) as watch:
        while seen.still_is(standing) and not service.tailer.closing:
            change = watch.next_change() if seen.revision is not None else watch.next_move()
            standing = await _read(service, key, job_id)
            left_s = seen.deadline - time.monotonic()
            if not seen.still_is(standing) or left_s <= 0 or not await service.tailer.wait(change, left_s):
                break
            service.lookers.note(job_id)
    return standing
