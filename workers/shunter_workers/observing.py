"""Reads what a step needs to know of its job: rows, and for a plan what providers offer. Takes no decision."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from shunter_planner import Candidate
from shunter_planner.fitting import slots_of
from shunter_planner.models.document import Known, Unknown, model_of
from shunter_planner.refused import refused_blocks
from shunter_schemas.job import JobSpec, load_job
from shunter_schemas.states import NodeState, State
from shunter_store.accounts import refusals
from shunter_store.errors import ClockSetBack, StaleStep
from shunter_store.job import jobs
from shunter_store.job.due import Claim
from shunter_store.job.lifecycle import is_terminal
from shunter_store.node import gang, ledger, reaching
from shunter_store.report import checkpoints, metrics
from shunter_store.report.pairs import Past
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import clock_of
from shunter_store.storage import bundle_members, bundles
from shunter_store.storage.bundles import BundleRow
from shunter_store.storage.objects import ObjectStore
from sqlalchemy import Connection

from shunter_workers import line
from shunter_workers.assignments import bundles_of
from shunter_workers.choosing import hosts_of
from shunter_workers.offers import Offers
from shunter_workers.states.avoiding import avoided
from shunter_workers.view import Market, View, memory_of, resource_name

SET_BACK_S: Final = 1.0
"""A clock that is kept right never goes back by so much at once."""
_PLANS: Final = frozenset({State.QUEUED, State.RECOVERING})
_PLACES: Final = frozenset({State.QUEUED, State.PROVISIONING, State.RECOVERING})


class Observer:
    """Makes views."""

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        database: Database,
        offers: Offers,
        *,
        unreachable_after_s: float,
        stop_grace_s: float = 30.0,
        objects: ObjectStore | None = None,
        past: Past | None = None,
        price_tolerance: float = 0.1,
    ) -> None:
        """`objects`: where the configurations of uploaded models lie; without it their sizes are not known.

        `past`: what past runs say of predictions. `price_tolerance`: by which share a price may have risen since a plan
        was made.
        """
        self._past = past
        self._price_tolerance = price_tolerance
        self._database = database
        self._objects = objects
        self._offers = offers
        self._unreachable_after_s = unreachable_after_s
        self._stop_grace_s = stop_grace_s

    async def look(self, claim: Claim) -> View:
        """The job as it is now.

        Raises:
            StaleStep: it ended, after another worker took it.
            ClockSetBack: what its rows say when is not to be held against the moment of the claim.
        """
        view = await self._database.aread(lambda conn: self._read(conn, claim))
        view = replace(
            view,
            capabilities=self._offers.capabilities(),
            accounts=self._offers.accounts(),
        )
        if view.job.state in _PLANS and not (view.job.cancel_requested_at or view.job.pause_requested_at):
            market = await self._offers.collect(view.document)
            model = await self._model(view.document)
            view = replace(view, market=market, accounts=self._offers.accounts(), model=model)
            if self._past is not None:
                view = replace(view, history=await self._past.history())
        elif view.job.state in _PLACES and view.job.plan:
            # Another process made the plan, perhaps: this one has to know the account too before it writes nodes down.
            await self._offers.learn_account(view.plan.instance)
            view = replace(view, market=Market(candidates=[_planned(view)]), accounts=self._offers.accounts())
            if any(node.state is NodeState.INTENDED for node in view.members):
                requoted = await self._offers.read_again(view.plan.instance, view.plan.offer)
                view = replace(view, requoted=requoted, price_tolerance=self._price_tolerance)
        if view.market.candidates:
            market = await self._database.aread(lambda conn: _with_slots(conn, view))
            view = replace(view, market=market)
        return view

    async def _model(self, document: JobSpec) -> Known | Unknown:
        config, weights = None, getattr(getattr(document.workload, "model", None), "weights", None)
        if self._objects is not None and weights is not None:
            config = await asyncio.to_thread(bundle_members.model_config, self._objects, document)
        return model_of(document.workload, config)

    def _read(self, conn: Connection, claim: Claim) -> View:
        job_id, job = claim.job_id, jobs.get(conn, claim.job_id)
        if job is None or is_terminal(job.state):
            raise StaleStep(claim.job_id, claim.fence)
        document = load_job(job.spec)
        facts = gang.gang_facts(conn, job_id, job.generation)
        now = clock_of(conn)
        if (claim.claimed_at - now).total_seconds() > SET_BACK_S:
            raise ClockSetBack(job_id)
        budgeted = document.limits.max_cost_usd is not None
        foretold = budgeted or memory_of(job).cap_ahead
        return View(
            job=job,
            document=document,
            nodes=ledger.of_job(conn, job_id, live_only=True),
            gang=facts,
            verdict=gang.verdict(facts),
            checkpoint=checkpoints.latest(conn, job_id),
            bundles=_bundles(conn, document),
            cost_usd=ledger.ledger_cost(conn, job_id) if budgeted else 0.0,
            progress=metrics.progress(conn, [job_id]).get(job_id) if foretold and job.state is State.RUNNING else None,
            unreachable_after_s=self._unreachable_after_s,
            stop_grace_s=self._stop_grace_s,
            refusals=reaching.refusals_of(conn, job_id),
        )


def _bundles(conn: Connection, document: JobSpec) -> dict[str, BundleRow]:
    rows = (bundles.get(conn, digest) for digest in bundles_of(document))
    return {row.digest: row for row in rows if row is not None}


def _planned(view: View) -> Candidate:
    """The offer of the plan that the job has: its missing nodes are made of the same."""
    plan = view.plan
    return Candidate(plan.instance, plan.offer, plan.shared_host)


def _with_slots(conn: Connection, view: View) -> Market:
    """The market with what is free on shared hosts, who else wants it, and which accounts make no nodes."""
    kind = "cpu" if view.document.resources.cpu_processes is not None else "gpu"
    shared = [candidate for candidate in view.market.candidates if candidate.shared_host]
    free = {
        (candidate.instance, candidate.offer.instance_type): _free(conn, candidate, kind, _avoided(view, candidate))
        for candidate in shared
    }
    instances = {candidate.instance for candidate in shared}
    names = {instance: resource_name(instance, kind) for instance in instances}
    return replace(
        view.market,
        refused=refused_blocks(refusals.standing(conn)),
        candidates=[_counted(candidate, free) for candidate in view.market.candidates],
        free=free,
        ahead={names[instance]: line.ahead_of(conn, view.job, instance, kind) for instance in instances},
        holders={names[instance]: line.holders_of(conn, view.job, instance, kind) for instance in instances},
    )


def _free(conn: Connection, candidate: Candidate, kind: str, avoided: Collection[int]) -> list[int]:
    offer = candidate.offer
    indices = offer.slot_indices or range(slots_of(offer, kind))
    taken = ledger.taken_slots(conn, candidate.instance, kind)
    return [index for index in indices if index not in taken and index // (offer.host_stride or 1) not in avoided]


def _avoided(view: View, candidate: Candidate) -> set[int]:
    """Numbers of hosts that were no good for this job a while ago."""
    if not candidate.offer.host_stride:
        return set()
    names = avoided(view, candidate.instance)
    return {number for number, name in hosts_of(candidate.offer).items() if name in names}


def _counted(candidate: Candidate, free: Mapping[tuple[str, str], Sequence[int]]) -> Candidate:
    left = free.get((candidate.instance, candidate.offer.instance_type))
    if left is None:
        return candidate
    offer = replace(candidate.offer, free=len(left))
    if offer.host_stride:
        hosts = sorted({index // offer.host_stride for index in offer.slot_indices})
        on_host = Counter(index // offer.host_stride for index in left)
        offer = replace(offer, free_on_hosts=tuple(on_host[host] for host in hosts))
    return replace(candidate, offer=offer)
