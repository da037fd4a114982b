"""What would become of a document if it were submitted now: the planner over the offers that workers wrote down."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from shunter_planner import Candidate, Facts, Plan, Refusal, Unavailable, plan
from shunter_planner.answers import answer_of
from shunter_planner.fitting import slots_of
from shunter_planner.models.document import model_of
from shunter_planner.refused import refused_blocks
from shunter_planner.values import offer_from_json
from shunter_schemas.api import PlanAnswer
from shunter_schemas.faults import DocumentError
from shunter_schemas.job import JobSpec
from shunter_schemas.parse import parse_job
from shunter_store.accounts import providers, refusals
from shunter_store.accounts.providers import ProviderRow
from shunter_store.node import ledger
from shunter_store.storage import bundle_members
from sqlalchemy import Connection

from shunter_service.accepting.submission import deployment_faults
from shunter_service.context import Service

GOOD_FOR: Final = timedelta(minutes=5)
"""How long a plan is shown as good: prices and capacity are read again every minute."""


@dataclass(frozen=True, slots=True)
class _Market:
    candidates: Sequence[Candidate]
    facts: Facts
    as_of: datetime | None


async def plan_document(service: Service, body: bytes) -> PlanAnswer:
    """The plan for a job document, in which folders of the author's machine may still stand. Spends nothing.

    Raises:
        DocumentError: the document is refused, as it would be when it is submitted.
    """
    job = parse_job(body)

    def read(conn: Connection) -> _Market:
        faults = [fault for fault in deployment_faults(conn, service, job) if not _is_of_a_bundle(fault.pointer)]
        if faults:
            raise DocumentError(faults)
        return _market(conn, service, job)

    market = await service.db.aread(read)
    answer = await _planned(service, job, market)
    now = datetime.now(UTC)
    return answer_of(
        answer,
        offers=len(market.candidates),
        as_of=market.as_of,
        expires_at=_expiry(answer, now) if isinstance(answer, Plan) else None,
    )


async def never(service: Service, job: JobSpec, *, spent_usd: float = 0.0, steps_done: int = 0) -> Refusal | None:
    """Why nothing that is offered could ever take a job; None: something could, or some provider could not be read.

    Args:
        spent_usd: what the job has cost so far.
        steps_done: of the checkpoint that it would go on from.
    """
    market = await service.db.aread(lambda conn: _market(conn, service, job))
    so_far = replace(market.facts, spent_usd=spent_usd, steps_done=steps_done, blocks=())
    answer = await _planned(service, job, replace(market, facts=so_far))
    return answer if isinstance(answer, Refusal) and answer.final else None


async def _planned(service: Service, job: JobSpec, market: _Market) -> Plan | Refusal:
    facts = replace(market.facts, model=model_of(job.workload, await _config(service, job)))
    return await asyncio.to_thread(plan, job, market.candidates, facts, await service.past.history())


async def _config(service: Service, job: JobSpec) -> Mapping[str, Any] | None:
    if getattr(getattr(job.workload, "model", None), "weights", None) is None:
        return None
    return await asyncio.to_thread(bundle_members.model_config, service.objects, job)


def _market(conn: Connection, service: Service, job: JobSpec) -> _Market:
    rows = {row.instance: row for row in providers.list_all(conn) if row.instance in service.data.providers}
    kind = "cpu" if job.resources.cpu_processes is not None else "gpu"
    candidates = [candidate for row in rows.values() if row.ok for candidate in _candidates(conn, row, kind)]
    silent = [
        Unavailable(name, rows[name].detail if name in rows else "no worker has read it yet")
        for name in service.data.providers
        if name not in rows or not rows[name].ok
    ]
    blocks = refused_blocks(refusals.standing(conn))
    facts = Facts(instances=tuple(service.data.providers), unavailable=silent, blocks=blocks)
    read_at = [row.updated_at for row in rows.values() if row.ok]
    return _Market(candidates, facts, min(read_at, default=None))


def _candidates(conn: Connection, row: ProviderRow, kind: str) -> list[Candidate]:
    shared = bool(row.capabilities.get("shared_hosts"))
    taken = frozenset(ledger.taken_slots(conn, row.instance, kind)) if shared else frozenset()
    found = []
    for stored in row.offers:
        offer = offer_from_json(stored)
        if shared:
            indices = offer.slot_indices or range(slots_of(offer, kind))
            offer = replace(offer, free=sum(index not in taken for index in indices))
        found.append(Candidate(row.instance, offer, shared, bool(row.capabilities.get("runs_images"))))
    return found


def _expiry(answer: Plan, now: datetime) -> datetime:
    void_at = answer.offer.valid_until
    later = now + GOOD_FOR
    return later if void_at is None else min(later, datetime.fromtimestamp(void_at, UTC))


def _is_of_a_bundle(pointer: str) -> bool:
    """Bundles need not be there yet: they are uploaded when the job is submitted."""
    return pointer == "/source/id" or (pointer.startswith("/inputs/") and pointer.endswith("/from"))
