"""Accepting a job: the document is checked, then stored with its answer in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from shunter_planner.matching import in_jurisdiction
from shunter_schemas.api import RetryRequest
from shunter_schemas.changes import with_changes
from shunter_schemas.faults import DocumentError, Fault, nearest_existing, pointer
from shunter_schemas.ids import new_id
from shunter_schemas.job import JobSpec
from shunter_schemas.parse import parse_posted_job
from shunter_schemas.reading import read_json
from shunter_schemas.source import BundleSource
from shunter_store.accounts import providers
from shunter_store.errors import KeyTaken
from shunter_store.job import jobs, retries
from shunter_store.job.intake import Answer, Offer
from shunter_store.job.jobs import JobRow, NewJob
from shunter_store.job.standings import Standing
from shunter_store.storage import bundles
from sqlalchemy import Connection

from shunter_service.accepting.deepspeed_files import deepspeed_file_faults
from shunter_service.access import own_job
from shunter_service.context import Service
from shunter_service.job_reading import tag
from shunter_service.showing.views import job_view
from shunter_service.web.answers import encode
from shunter_service.web.repeating import Asked, Done, before, once

PATH: Final = "/v1/jobs"
_BUNDLE_INPUT = "bundle:"


async def submit(service: Service, asked: Asked) -> Done:
    """The answer to a POSTed document. Durable when this returns.

    Raises:
        DocumentError: the document is refused; nothing was stored.
        IdempotencyMismatch: the key was used with another body.
    """
    try:
        job = parse_posted_job(asked.body)
        _refuse(await deepspeed_file_faults(service.objects, job), asked)
        answer = await service.intake.ask(_offer(service, asked, job))
    except (DocumentError, KeyTaken):
        # What was accepted under the key is answered again, whatever would become of it today.
        if (known := await before(service, asked)) is not None:
            return known
        raise
    return Done(answer.status, answer.body.encode(), answer.headers)


def _offer(service: Service, asked: Asked, job: JobSpec) -> Offer:
    def check(conn: Connection) -> None:
        _refuse(list(deployment_faults(conn, service, job)), asked)

    new = NewJob(
        id=new_id("job"),
        project=asked.by.project,
        created_by=asked.by.name,
        name=job.name,
        labels=job.labels,
        priority=jobs.URGENCIES[job.priority],
        spec=job.model_dump(mode="json"),
        spec_text=asked.body.decode(),
    )
    key = asked.idempotency_key
    return Offer(new, _answer, None if key is None else (asked.path, key, asked.digest), check)


def _refuse(faults: list[Fault], asked: Asked) -> None:
    if faults:
        document = read_json(asked.body)
        raise DocumentError([Fault(nearest_existing(fault.pointer, document), fault.detail) for fault in faults])


def _answer(row: JobRow) -> Answer:
    done = _created(row)
    return Answer(done.status, done.headers, done.body.decode())


async def retry(service: Service, asked: Asked, job_id: str, request: RetryRequest) -> Done:
    """The answer to the wish that an ended job is taken up again, as a new one.

    Raises:
        DocumentError: the document is refused as it would be now, or with the changes; pointers into it.
        Conflict: `job_not_ended`, `no_checkpoint`.
    """

    def accept(conn: Connection) -> Done:
        old = own_job(conn, asked.by, job_id)
        document = with_changes(old.spec, request)
        if faults := list(deployment_faults(conn, service, document)):
            raise DocumentError(faults)
        row = retries.retry(conn, job_id, document, new_id=new_id("job"), by=asked.by.name, start=request.from_)
        return _created(row)

    return await once(service, asked, accept)


def _created(row: JobRow) -> Done:
    standing = Standing(row)
    return Done(201, encode(job_view(standing)), {"Location": f"{PATH}/{row.id}", "ETag": tag(standing)})


def deployment_faults(conn: Connection, service: Service, job: JobSpec) -> Iterator[Fault]:
    """What is wrong with the document in this installation: providers, jurisdictions, bundles."""
    configured = service.data.providers
    for index, name in enumerate(job.placement.providers):
        if name not in configured:
            names = ", ".join(sorted(configured)) or "none"
            yield Fault(f"/placement/providers/{index}", f"no provider `{name}` is configured; there are: {names}")
    yield from _option_faults(conn, service, job)
    yield from _image_faults(conn, job, job.placement.providers or tuple(configured))
    wanted = job.placement.jurisdictions
    found = _jurisdictions(conn, job.placement.providers or tuple(configured)) if wanted else None
    if found is not None and not any(in_jurisdiction(wanted, place) for place in found):
        named = ", ".join(sorted(place for place in found if place)) or "none that is known"
        yield Fault("/placement/jurisdictions", f"no configured provider offers one of these; offered: {named}")
    for place, bundle_id in _bundle_ids(job):
        if bundles.get(conn, bundle_id.removeprefix("bun_")) is None:
            yield Fault(place, f"there is no bundle {bundle_id}; upload it with POST /v1/bundles first")


def _option_faults(conn: Connection, service: Service, job: JobSpec) -> Iterator[Fault]:
    """Names of options that the plugin does not know; their values are the plugin's to check when it makes a node."""
    if not job.placement.options:
        return
    rows = {row.instance: row for row in providers.list_all(conn)}
    for name, given in job.placement.options.items():
        if name not in service.data.providers:
            names = ", ".join(sorted(service.data.providers))
            yield Fault(
                pointer(("placement", "options", name)), f"no provider `{name}` is configured; there are: {names}"
            )
        elif name in rows and rows[name].capabilities:
            known = [str(option) for option in rows[name].capabilities.get("options", ())]
            for option in given:
                if option not in known:
                    takes = f"it takes: {', '.join(known)}" if known else "it takes none"
                    detail = f"the plugin `{rows[name].plugin}` has no such option; {takes}"
                    yield Fault(pointer(("placement", "options", name, option)), detail)


def _image_faults(conn: Connection, job: JobSpec, names: Sequence[str]) -> Iterator[Fault]:
    """An image that no node of these instances would run. One that was never read may run it."""
    if job.environment.image is None:
        return
    rows = {row.instance: row.capabilities for row in providers.list_all(conn)}
    if all(rows.get(name) and not rows[name].get("runs_images") for name in names):
        able = [name for name, declared in rows.items() if declared.get("runs_images")]
        others = f"; of the configured ones {', '.join(able)} would" if able else ", and no other is configured"
        detail = f"nodes of {', '.join(sorted(names)) or 'no provider'} run no container images{others}"
        yield Fault("/environment/image", detail)


def _jurisdictions(conn: Connection, names: tuple[str, ...]) -> set[str] | None:
    """Where these instances offer nodes; None when one of them has not been read, so that nobody knows yet."""
    rows = {row.instance: row for row in providers.list_all(conn)}
    found: set[str] = set()
    for name in names:
        offers: list[dict[str, Any]] = rows[name].offers if name in rows else []
        if not offers:
            return None
        found |= {str(offer.get("jurisdiction") or "") for offer in offers}
    return found


def _bundle_ids(job: JobSpec) -> Iterator[tuple[str, str]]:
    if isinstance(job.source, BundleSource):
        yield "/source/id", job.source.id
    for name, item in job.inputs.items():
        if item.from_.startswith(_BUNDLE_INPUT):
            yield pointer(("inputs", name, "from")), item.from_.removeprefix(_BUNDLE_INPUT)
