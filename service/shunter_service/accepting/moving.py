"""The wish that a job goes on under another strategy, on other resources, or elsewhere; refused where it cannot."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from shunter_schemas.api import MoveRequest
from shunter_schemas.changes import MOVABLE, with_move
from shunter_schemas.faults import DocumentError, Fault
from shunter_schemas.job import JobSpec
from shunter_schemas.states import Reason, State
from shunter_store.job import standings, wishes
from shunter_store.job.jobs import JobRow
from shunter_store.job.lifecycle import is_terminal
from shunter_store.node import ledger
from shunter_store.report import checkpoints
from sqlalchemy import Connection

from shunter_service.accepting import planning
from shunter_service.accepting.submission import deployment_faults
from shunter_service.access import own_job
from shunter_service.context import Service
from shunter_service.job_reading import tag
from shunter_service.showing.views import job_view
from shunter_service.web.answers import encode
from shunter_service.web.problems import ProblemError
from shunter_service.web.repeating import Asked, Done, before, once

_WHERE: Final[Mapping[Reason, str]] = {Reason.INVALID: "/strategy", Reason.DOES_NOT_FIT: "/resources"}
"""The part of the document that a plan that can never be made is told at; by default the placement."""


async def move(
    service: Service, asked: Asked, job_id: str, request: MoveRequest, revisions: Collection[int] | None
) -> Done:
    """The answer to the wish. Durable when this returns.

    Raises:
        ProblemError: 422 when nothing would change, 409 `not_resumable`.
        DocumentError: the document would not be valid so, or no offer could ever take it; pointers into it.
        Conflict: `job_ended`, `job_stopping`.
        RevisionChanged: the job has another revision than those that the client saw.
    """
    if not request.model_fields_set & set(MOVABLE):
        raise ProblemError("invalid_request", f"give what to change: {', '.join(MOVABLE)}")

    if (known := await before(service, asked)) is not None:
        return known
    await _refuse_impossible(service, asked, job_id, request)

    def write(conn: Connection) -> Done:
        own_job(conn, asked.by, job_id)

        def resolve(row: JobRow) -> dict[str, Any]:
            return _parts(conn, service, row, request)

        row = wishes.request_move(conn, job_id, resolve, by=asked.by.name, revisions=revisions)
        standing = standings.of_row(conn, row)
        return Done(202, encode(job_view(standing)), {"ETag": tag(standing)})

    return await once(service, asked, write, known_new=True)


def runs(job: JobRow) -> bool:
    """Whether ranks may have done something that would be lost without a checkpoint."""
    return job.state in (State.STARTING, State.RUNNING, State.RECOVERING)


def can_resume(job: JobRow) -> bool:
    """Whether the service can tell what a new start goes on from."""
    workload = job.spec["workload"]
    return workload["kind"] == "training" or workload.get("checkpoint") is not None


async def _refuse_impossible(service: Service, asked: Asked, job_id: str, request: MoveRequest) -> None:
    """A job that trains must not be stopped for a plan that can never be made."""

    def read(conn: Connection) -> tuple[JobSpec, float, int] | None:
        job = own_job(conn, asked.by, job_id)
        if is_terminal(job.state):
            return None
        saved = checkpoints.latest(conn, job_id)
        steps_done = saved.step if saved is not None else job.resumes_from_step or 0
        return _changed(conn, service, job, request), ledger.ledger_cost(conn, job_id), steps_done

    found = await service.db.aread(read)
    if found is None:
        return
    document, spent_usd, steps_done = found
    refusal = await planning.never(service, document, spent_usd=spent_usd, steps_done=steps_done)
    if refusal is not None:
        raise DocumentError([Fault(_WHERE.get(refusal.reason, "/placement"), refusal.detail)])


def _changed(conn: Connection, service: Service, job: JobRow, request: MoveRequest) -> JobSpec:
    document = with_move({**job.spec, **(job.move_wish or {})}, request)
    if faults := list(deployment_faults(conn, service, document)):
        raise DocumentError(faults)
    return document


def _parts(conn: Connection, service: Service, job: JobRow, request: MoveRequest) -> dict[str, Any]:
    """The parts of the document that change, whole; a wish that waits is taken as done."""
    if runs(job) and not can_resume(job):
        raise ProblemError(
            "not_resumable",
            "the document does not say how the program's checkpoints are recognised (`workload.checkpoint`): a move "
            "would lose what it did; cancel it, and retry it from the start",
        )
    document = _changed(conn, service, job, request)
    written = document.model_dump(mode="json")
    parts = {name: written[name] for name in MOVABLE if written[name] != job.spec.get(name)}
    if not parts and job.move_wish is None:
        raise ProblemError("invalid_request", "the job's document says all of this already: nothing would change")
    return parts
