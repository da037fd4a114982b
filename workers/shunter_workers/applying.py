"""Writes a decision down: rows of the ledger first, then the job, in one transaction guarded by the claim's fence.

What is never fenced (a handle, a proof of absence) goes in a transaction of its own before it, so that a stale claim
takes nothing of it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from shunter_planner import Plan
from shunter_providers.contract import Capabilities
from shunter_schemas.ids import new_node_token
from shunter_schemas.node_sync import Phase
from shunter_store.accounts import refusals
from shunter_store.installation import signing
from shunter_store.job import due, steps
from shunter_store.job.due import Claim
from shunter_store.job.jobs import JobRow
from shunter_store.node import ledger, scans
from shunter_store.node.ledger import NewNode
from sqlalchemy import Connection

from shunter_workers import breakdowns, line
from shunter_workers.decisions import (
    BeginCreate,
    Fenced,
    Intend,
    Limit,
    MarkUnknown,
    RecordHandle,
    RecordSeen,
    Release,
    Renumber,
    Run,
    Settle,
    Tell,
    Unfenced,
    WakeWaiting,
)
from shunter_workers.view import MEMORY, View

_log = logging.getLogger(__name__)


class Applier:
    """Knows what rows need beside the decision: the deployment's mark and the secret of sync tokens."""

    def __init__(self, deployment: str, secret: bytes) -> None:
        self._deployment = deployment
        self._secret = secret

    def record(self, conn: Connection, settled: Settle) -> None:
        """What holds whoever has the job by now."""
        for write in settled.writes:
            if isinstance(write, Unfenced):
                _record(conn, write)

    def apply(self, conn: Connection, claim: Claim, view: View, settled: Settle) -> JobRow:
        """Everything else, and the job itself.

        Raises:
            StaleStep: the fence moved; nothing was written.
            SlotsTaken: another job took a slot meanwhile; nothing was written.
            Overtaken: the job was woken meanwhile, and this would end or begin a gang; nothing was written.
        """
        fenced = [write for write in settled.writes if isinstance(write, Fenced)]
        self._write_all(conn, claim, view, fenced)
        change = settled.change
        facts = breakdowns.forgotten(view.job) | ({} if settled.memory is None else {MEMORY: settled.memory})
        if facts:
            change = replace(change, set={**change.set, "facts": facts})
        return steps.apply(conn, claim, change)

    def commit_intent(self, conn: Connection, claim: Claim, view: View, writes: list[Fenced]) -> None:
        """What has to be committed before a provider is called.

        Raises:
            StaleStep: the fence moved; nothing was written.
        """
        self._write_all(conn, claim, view, writes)
        due.require(conn, claim)

    def _write_all(self, conn: Connection, claim: Claim, view: View, writes: list[Fenced]) -> None:
        for write in writes:
            if isinstance(write, Intend):
                self._intend(conn, claim, view, write)
            elif isinstance(write, BeginCreate):
                ledger.begin_create(conn, claim, write.node_id, write.deadline_at, usd_per_hour=write.usd_per_hour)
            else:
                _WRITERS[type(write)](conn, write)

    def _intend(self, conn: Connection, claim: Claim, view: View, intend: Intend) -> None:
        capabilities = view.capabilities.get(intend.plan.instance) or Capabilities()
        new = [
            self._new_node(intend.plan, place.rank, place.slot_indices, capabilities, view) for place in intend.places
        ]
        ledger.intend(conn, claim, job_id=claim.job_id, generation=intend.generation, nodes=new)

    def _new_node(
        self, plan: Plan, rank: int, slots: tuple[int, ...], capabilities: Capabilities, view: View
    ) -> NewNode:
        token = new_node_token(self._deployment)
        return NewNode(
            rank=rank,
            token=token,
            sync_token_hash=signing.token_hash(signing.node_sync_token(self._secret, token)),
            instance=plan.instance,
            account=view.accounts[plan.instance],
            offer=asdict(plan.offer),
            billed_usd_per_hour=plan.offer.price.usd_per_hour,
            slot_kind=plan.slot_kind if plan.shared_host else None,
            slot_indices=slots,
            lease_s=capabilities.lease_s,
        )


def _run(conn: Connection, run: Run) -> None:
    for node_id, assignment in run.orders:
        ledger.want(
            conn,
            [node_id],
            phase=Phase.RUN,
            generation=run.generation,
            assignment=assignment.model_dump(mode="json"),
            stop_at=run.stop_at,
        )


def _tell(conn: Connection, tell: Tell) -> None:
    ledger.want(conn, tell.node_ids, phase=tell.phase, generation=tell.generation, reason=tell.reason)


def _limit(conn: Connection, limit: Limit) -> None:
    ledger.limit(conn, limit.node_ids, limit.stop_at)


def _renumber(conn: Connection, renumber: Renumber) -> None:
    ledger.renumber(conn, renumber.ranks)


def _release(conn: Connection, release: Release) -> None:
    ledger.mark_releasing(conn, release.node_ids, release.reason)


def _mark_unknown(conn: Connection, mark: MarkUnknown) -> None:
    ledger.mark_unknown(conn, mark.node_id, mark.detail)


def _record_seen(conn: Connection, seen: RecordSeen) -> None:
    scans.see_first(conn, seen.node_id, condition=seen.condition, reason=seen.reason, addresses=seen.addresses)


def _wake_waiting(conn: Connection, wake: WakeWaiting) -> None:
    due.wake(conn, line.first_in_line(conn, wake.instance, wake.slot_kind, wake.slots))


_WRITERS: Mapping[type, Callable[[Connection, Any], None]] = {
    Run: _run,
    Tell: _tell,
    Limit: _limit,
    Renumber: _renumber,
    Release: _release,
    MarkUnknown: _mark_unknown,
    RecordSeen: _record_seen,
    WakeWaiting: _wake_waiting,
}


def _record(conn: Connection, write: Unfenced) -> None:
    if isinstance(write, RecordHandle):
        ledger.record_handle(conn, write.node_id, write.handle)
        refusals.forget(conn, write.node_id)
        return
    closed = ledger.close_absent(conn, write.node.id, write.proof)
    if "refusal" in write.proof:
        refusals.note(conn, write.node.instance, write.proof["refusal"])
    if not closed:
        _log.warning("the proof %s does not close node %s", dict(write.proof), write.node.token)
    elif write.node.slot_kind is not None:
        _wake_waiting(conn, WakeWaiting(write.node.instance, write.node.slot_kind, len(write.node.slot_indices)))
