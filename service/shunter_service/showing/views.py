"""Rows to what the API shows. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Literal, cast

from pydantic import ValidationError
from pydantic_core import to_json
from shunter_schemas.api import (
    Artifact,
    Bundle,
    Cost,
    Event,
    Job,
    JobDocument,
    JobDocuments,
    JobNode,
    Progress,
    ProviderInfo,
    ProviderRefusal,
    Transition,
    Waiting,
)
from shunter_schemas.api.base import rfc3339
from shunter_schemas.states import Health, NodeState, State
from shunter_store.accounts.providers import ProviderRow
from shunter_store.installation.settings import ProviderSettings
from shunter_store.job.documents import DocumentRow
from shunter_store.job.events import EventRow, TransitionRow
from shunter_store.job.job_lists import JobLine, Steps
from shunter_store.job.jobs import URGENCIES, JobRow
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.standings import Standing
from shunter_store.node.ledger import NodeRow
from shunter_store.report.artifacts import ArtifactRow
from shunter_store.storage.bundles import BundleRow

from shunter_service.showing.attempts import attempts
from shunter_service.showing.forecasts import forecast
from shunter_service.showing.plan_views import plan_view

_PRIORITIES = cast(
    "Mapping[int, Literal['low', 'normal', 'high']]", {number: word for word, number in URGENCIES.items()}
)
_RESOURCES = (
    "events",
    "logs",
    "metrics",
    "artifacts",
    "checkpoints",
    "cancel",
    "pause",
    "resume",
    "checkpoint",
    "retry",
    "move",
    "documents",
    "receipt",
)


def job_view(standing: Standing) -> Job:
    """The whole job."""
    row = standing.row
    here = f"/v1/jobs/{row.id}"
    return Job(
        id=row.id,
        name=row.name,
        labels=row.labels,
        priority=_PRIORITIES[row.priority],
        state=row.state,
        reason=row.reason,
        message=row.message,
        health=row.health,
        outcome=row.outcome,
        created_at=row.created_at,
        updated_at=row.updated_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        released_at=row.released_at,
        cancel_requested_at=row.cancel_requested_at,
        pause_requested_at=row.pause_requested_at,
        move_requested_at=row.move_requested_at,
        move=row.move_wish,
        document=row.document_version,
        retry_of=row.retry_of,
        resumes_from_step=row.resumes_from_step,
        created_by=row.created_by,
        project=row.project,
        revision=row.revision,
        attempt=sum(move.trigger is Trigger.PLANNED for move in standing.moves),
        generation=row.generation,
        progress=_progress(standing) if standing.progress else None,
        waiting=None if row.waiting is None else _waiting(row.waiting),
        plan=None if row.plan is None else plan_view(row.plan, standing),
        nodes=tuple(_node(node, row.health) for node in standing.nodes),
        attempts=tuple(attempts(standing)),
        transitions=(Transition(at=row.created_at, to=State.QUEUED), *map(_transition, standing.moves)),
        cost=_cost(standing),
        spec=row.spec,
        links={"self": here} | {name: f"{here}/{name}" for name in _RESOURCES},
    )


def page_json(lines: Sequence[JobLine], steps: Mapping[str, Steps], next_cursor: str | None) -> bytes:
    """The JSON of a `JobPage`. Lists are asked for over and over: a model for each line would double their cost."""
    page: dict[str, Any] = {"items": [_summary(line, steps.get(line.id)) for line in lines]}
    if next_cursor is not None:
        page["next_cursor"] = next_cursor
    return to_json(page)


def _summary(line: JobLine, steps: Steps | None) -> dict[str, Any]:
    """A `JobSummary`: what is not known is left out."""
    summary: dict[str, Any] = {"id": line.id, "name": line.name, "state": line.state}
    if line.reason is not None:
        summary["reason"] = line.reason
    if steps is not None:
        summary["step"] = steps.step
        if steps.total_steps is not None:
            summary["total_steps"] = steps.total_steps
    summary["created_at"] = rfc3339(line.created_at)
    if line.finished_at is not None:
        summary["finished_at"] = rfc3339(line.finished_at)
    elif line.pause_requested_at is not None:
        summary["paused"] = True
    return summary


def event_view(row: EventRow) -> Event:
    return Event(seq=row.seq, at=row.at, type=row.type, data=row.data)


def documents_view(row: JobRow, replaced: Sequence[DocumentRow]) -> JobDocuments:
    """Every version of the job's document."""
    begins = [1, *(one.last_generation + 1 for one in replaced)]
    before = [
        JobDocument(
            version=one.version,
            first_generation=first,
            last_generation=one.last_generation,
            replaced_at=one.replaced_at,
            spec=one.spec,
        )
        for first, one in zip(begins, replaced, strict=False)
    ]
    present = JobDocument(version=row.document_version, first_generation=begins[-1], spec=row.spec)
    return JobDocuments(items=(*before, present))


def artifact_view(row: ArtifactRow, href: str) -> Artifact:
    return Artifact(
        path=row.path,
        size_bytes=row.size,
        sha256=row.sha256,
        generation=row.generation,
        created_at=row.created_at,
        href=href,
    )


def bundle_view(row: BundleRow) -> Bundle:
    return Bundle(id=f"bun_{row.digest}", size_bytes=row.size, files=row.entries, created_at=row.created_at)


def provider_view(name: str, configured: ProviderSettings, row: ProviderRow | None) -> ProviderInfo:
    """A configured instance, with what a worker found out about it if one has."""
    held = None if configured.hold is None else configured.hold.words
    if row is None:
        detail = "no worker has read it yet"
        return ProviderInfo(name=name, plugin=configured.plugin, status="unknown", detail=detail, held=held)
    status: Literal["ok", "error", "not_loaded"] = "ok" if row.ok else "error" if row.capabilities else "not_loaded"
    return ProviderInfo(
        name=name,
        plugin=row.plugin,
        status=status,
        detail=row.detail,
        held=held,
        account=row.account,
        limits=row.limits or {},
        refusal=None if row.refusal is None else ProviderRefusal.model_validate(row.refusal),
        bills=bool(row.capabilities.get("bills", False)),
        read_at=row.updated_at,
        capabilities=row.capabilities,
    )


def _transition(move: TransitionRow) -> Transition:
    return Transition(
        at=move.at,
        from_=move.from_state,
        to=move.to_state,
        trigger=move.trigger,
        reason=move.reason,
        generation=move.generation,
    )


def _progress(standing: Standing) -> Progress:
    """Of the newest generation that reported."""
    row = standing.progress[-1]
    values = {name: float(value) for name, value in row.values.items() if isinstance(value, int | float)}
    eta_s = row.eta_s if row.eta_s is not None else _guessed_eta_s(standing)
    trains = standing.row.state is State.RUNNING and row.generation == standing.row.generation
    return Progress(
        step=row.step,
        total_steps=row.total_steps,
        loss=values.get("loss"),
        tokens_per_s=values.get("tokens_per_s"),
        eta_s=eta_s,
        eta_at=_later(row.at, eta_s) if trains and eta_s is not None else None,
        values=values,
        updated_at=row.at,
    )


def _guessed_eta_s(standing: Standing) -> float | None:
    """By the pace so far, for programs that do not say it; only where the steps began at 0."""
    row, began = standing.progress[-1], standing.row.started_at
    if (
        row.total_steps is None
        or row.step <= 0
        or began is None
        or row.generation != 1
        or standing.row.resumes_from_step
    ):
        return None
    return max(0.0, (row.at - began).total_seconds() / row.step * (row.total_steps - row.step))


def _later(at: datetime, seconds: float) -> datetime | None:
    """None beyond the years that a calendar holds: a program said nonsense."""
    try:
        return at + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _waiting(stored: Mapping[str, Any]) -> Waiting:
    """What a step wrote down; a part that this release does not understand is left out rather than failing the job."""
    tried = [
        {"provider": entry.get("instance", ""), **entry}
        for entry in stored.get("tried") or ()
        if isinstance(entry, dict)
    ]
    with suppress(ValidationError):
        return Waiting.model_validate({**stored, "tried": tried})
    return Waiting(reason=str(stored.get("reason", "waiting")), detail=str(stored.get("detail", "")))


def _node(row: NodeRow, job_health: Health) -> JobNode:
    return JobNode(
        token=row.token,
        rank=row.rank,
        attempt=row.generation,
        provider=row.instance,
        instance_type=str(row.offer.get("instance_type", "")),
        region=str(row.offer.get("region", "")),
        handle=row.handle or "",
        hostname=str((row.boot or {}).get("hostname", "")),
        state=row.state,
        health=job_health if row.state is NodeState.READY else Health.OK,
        usd_per_hour=row.billed_usd_per_hour,
        created_at=row.intended_at,
        ready_at=row.ready_at,
        last_seen_at=row.last_sync_at,
        released_at=row.gone_at,
    )


def _cost(standing: Standing) -> Cost:
    rate = _billing(standing.nodes)
    return Cost(usd=round(standing.cost_usd, 6), usd_per_hour=rate, forecast=forecast(standing, rate))


def _billing(nodes: Sequence[NodeRow]) -> float:
    return sum(node.billed_usd_per_hour for node in nodes if node.handle and node.state is not NodeState.GONE)
