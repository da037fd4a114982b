"""Accepting a job: the document is checked, then stored with its answer in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from shunter_planner.matching import in_jurisdiction
from shunter_schemas.faults import DocumentError, Fault, nearest_existing, pointer
from shunter_schemas.ids import new_id
from shunter_schemas.job import JobSpec
from shunter_schemas.parse import parse_posted_job
from shunter_schemas.reading import read_json
from shunter_schemas.source import BundleSource
from shunter_store import bundles, idempotency, jobs, providers
from shunter_store.api_keys import ApiKey
from shunter_store.errors import KeyTaken
from shunter_store.idempotency import Stored
from sqlalchemy import Connection

from shunter_service.answers import encode, entity_tag
from shunter_service.context import Service
from shunter_service.views import job_view

PATH = "/v1/jobs"
_BUNDLE_INPUT = "bundle:"


async def submit(service: Service, key: ApiKey, body: bytes, idempotency_key: str | None) -> tuple[Stored, bool]:
    """The answer to a POSTed document, and whether it is a replay. Durable when this returns.

    Raises:
        DocumentError: the document is refused; nothing was stored.
        IdempotencyMismatch: the key was used with another body.
    """
    digest = sha256(body).hexdigest()
    if idempotency_key is not None and (before := await _replay(service, key, idempotency_key, digest)):
        return before, True
    job = parse_posted_job(body)

    def accept(conn: Connection) -> Stored:
        faults = list(_deployment_faults(conn, service, job))
        if faults:
            document = read_json(body)
            raise DocumentError([Fault(nearest_existing(fault.pointer, document), fault.detail) for fault in faults])
        answer = _insert(conn, key, job, body, digest)
        if idempotency_key is not None:
            idempotency.store(
                conn,
                project=key.project,
                path=PATH,
                key=idempotency_key,
                body_hash=digest,
                status=answer.status,
                body=answer.body,
                headers=answer.headers,
            )
        return answer

    try:
        return await service.db.awrite(accept), False
    except KeyTaken:
        assert idempotency_key is not None
        first = await _replay(service, key, idempotency_key, digest)
        assert first is not None, "whoever took the key has committed"
        return first, True


async def _replay(service: Service, key: ApiKey, idempotency_key: str, digest: str) -> Stored | None:
    return await service.db.aread(lambda conn: idempotency.replay(conn, key.project, PATH, idempotency_key, digest))


def _insert(conn: Connection, key: ApiKey, job: JobSpec, body: bytes, digest: str) -> Stored:
    row = jobs.insert(
        conn,
        job_id=new_id("job"),
        project=key.project,
        created_by=key.name,
        spec=job.model_dump(mode="json"),
        spec_text=body.decode(),
        name=job.name,
        labels=job.labels,
        priority=jobs.URGENCIES[job.priority],
    )
    answer = encode(job_view(row))
    headers = {"Location": f"{PATH}/{row.id}", "ETag": entity_tag(row.revision, answer)}
    return Stored(digest, 201, headers, answer.decode(), row.created_at)


def _deployment_faults(conn: Connection, service: Service, job: JobSpec) -> Iterator[Fault]:
    """What is wrong with the document in this installation: providers, jurisdictions, bundles."""
    configured = service.data.providers
    for index, name in enumerate(job.placement.providers):
        if name not in configured:
            names = ", ".join(sorted(configured)) or "none"
            yield Fault(f"/placement/providers/{index}", f"no provider `{name}` is configured; there are: {names}")
    wanted = job.placement.jurisdictions
    found = _jurisdictions(conn, job.placement.providers or tuple(configured)) if wanted else None
    if found is not None and not any(in_jurisdiction(wanted, place) for place in found):
        named = ", ".join(sorted(place for place in found if place)) or "none that is known"
        yield Fault("/placement/jurisdictions", f"no configured provider offers one of these; offered: {named}")
    for place, bundle_id in _bundle_ids(job):
        if bundles.get(conn, bundle_id.removeprefix("bun_")) is None:
            yield Fault(place, f"there is no bundle {bundle_id}; upload it with POST /v1/bundles first")


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
