"""Mutants: what the store and the workers must never become, each as a patch of the real code.

The model has to find every one of them; a model that does not is too weak to say anything of the real code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import pytest
from shunter_schemas.node_sync import Lease
from shunter_schemas.states import NodeState, State
from shunter_store.errors import StaleStep
from shunter_store.job import due, events, outbox, steps
from shunter_store.job.due import Claim
from shunter_store.job.steps import Change
from shunter_store.node import gang, journals, ledger, scans, sync
from shunter_store.node.gang import GangFacts, Outcome, Verdict
from shunter_store.node.ledger import NodeRow
from shunter_store.report import checkpoints, logs
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now, now_as_time, seconds
from shunter_store.tables import job_due, nodes, slots
from shunter_store.tables import jobs as jobs_table
from shunter_workers import deciding, settling
from shunter_workers.accounts import Accounts
from shunter_workers.applying import Applier
from shunter_workers.decisions import Close, Release, Settle
from shunter_workers.duties import reaper, scanner
from shunter_workers.states import closing, ends, provisioning, queued, recovering, running, silence, starting
from shunter_workers.states import gang as gang_states
from sqlalchemy import Connection, bindparam, false, func, null, select, update

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Mutant:
    """A wrong version of the code, and the promises by which it may be caught."""

    name: str
    make: Callable[[Patch], None]
    breaks: frozenset[int]


# --- steps and claims ------------------------------------------------------------------------------------------------


def _without_fence(patch: Patch) -> None:
    original = steps.apply

    def apply(conn: Connection, claim: Claim, change: Change) -> Any:
        its = job_due.c.job_id == claim.job_id
        conn.execute(update(job_due).where(its).values(lease_owner="mutant"))
        fence = conn.execute(select(job_due.c.fence).where(its)).scalar()
        if fence is None:
            raise StaleStep(claim.job_id, claim.fence)
        return original(conn, Claim(claim.job_id, fence, claim.claimed_at), change)

    patch.setattr(steps, "apply", apply)


def _claims_whatever_is_due(patch: Patch) -> None:
    conditions = due._due(seconds("lease_s"))[:-1]
    picked = select(job_due.c.job_id).where(*conditions).order_by(job_due.c.next_at).limit(bindparam("limit"))
    claim = (
        update(job_due)
        .where(job_due.c.job_id.in_(picked))
        .values(
            fence=job_due.c.fence + 1,
            seen_wake=job_due.c.wake,
            lease_owner=bindparam("owner"),
            lease_until=db_now() + seconds("lease_s"),
        )
        .returning(job_due.c.job_id, job_due.c.fence, job_due.c.lease_until, job_due.c.urgency, job_due.c.next_at)
    )
    patch.setattr(due, "_CLAIM", claim)


def _forgets_a_wake_during_a_step(patch: Patch) -> None:
    def letting_go(next_at: Any) -> Any:
        return (
            update(job_due)
            .where(due.still_held("job", "at"))
            .values(lease_owner=None, lease_until=None, next_at=next_at)
            .returning(func.coalesce(job_due.c.next_at <= db_now(), False), now_as_time(), false())
        )

    patch.setattr(steps, "_PARK", letting_go(null()))
    patch.setattr(steps, "_COME_AGAIN", letting_go(db_now() + seconds("next_in_s")))


def _leaves_no_hint(patch: Patch) -> None:
    patch.setattr(outbox, "put", lambda conn, topic="": None)


def _creates_before_the_intent(patch: Patch) -> None:
    commit, apply = Applier.commit_intent, Applier.apply
    late: list[tuple[Any, ...]] = []

    def applying(self: Applier, conn: Connection, claim: Claim, view: Any, settled: Any) -> Any:
        if late:
            commit(self, conn, *late.pop())
        return apply(self, conn, claim, view, settled)

    patch.setattr(Applier, "commit_intent", lambda self, conn, *one: late.append(one))
    patch.setattr(Applier, "apply", applying)


def _tells_events_afterwards(patch: Patch) -> None:
    told: list[tuple[Any, ...]] = []
    write, numbered = Database.write, events.write_numbered

    def writing(self: Database, fn: Any) -> Any:
        told.clear()
        result = write(self, fn)
        late = list(told)
        if late:
            write(self, lambda conn: [numbered(conn, *one) for one in late])
        return result

    patch.setattr(Database, "write", writing)
    patch.setattr(events, "write_numbered", lambda conn, *one: told.append(one))


# --- the ledger ------------------------------------------------------------------------------------------------------


def _believes_any_proof(patch: Patch) -> None:
    suffices = ledger._suffices
    patch.setattr(ledger, "_suffices", lambda row, proof: proof.get("kind") == "trust me" or suffices(row, proof))


def _trusts_terminate(patch: Patch) -> None:
    _believes_any_proof(patch)
    patch.setattr(
        settling, "_asked", lambda view, node, now: Settle(Change(next_in_s=0.0), [Close(node, {"kind": "trust me"})])
    )


def _closes_what_takes_too_long(patch: Patch) -> None:
    _believes_any_proof(patch)
    original = closing._close

    def close(node: NodeRow, view: Any, now: Any) -> Any:
        if node.releasing_at is not None and (now - node.releasing_at).total_seconds() > 25.0:
            return Settle(Change(next_in_s=0.0), [Close(node, {"kind": "trust me"})])
        return original(node, view, now)

    patch.setattr(closing, "_close", close)


def _closes_without_asking_for_the_node(patch: Patch) -> None:
    original = closing._close

    def close(node: NodeRow, view: Any, now: Any) -> Any:
        if node.handle is not None and node.absent_scans >= 2:
            proof = {"kind": "absent", "account": node.account, "get": "gone"}
            return Settle(Change(next_in_s=0.0), [Close(node, proof)])
        return original(node, view, now)

    patch.setattr(closing, "_close", close)


def _one_listing_is_proof(patch: Patch) -> None:
    for module in (scans, ledger, closing, reaper):
        patch.setattr(module, "SCANS_FOR_PROOF", 1)


def _absence_counts_at_once(patch: Patch) -> None:
    patch.setattr(scanner, "_could_be_listed", lambda rows, capabilities, at: frozenset(row.id for row in rows))
    patch.setattr(scans, "_past_deadline", lambda row, at: True)


def _takes_every_account_for_its_own(patch: Patch) -> None:
    async def of(self: Accounts, instance: str) -> str:
        return "ours"

    patch.setattr(Accounts, "of", of)
    patch.setattr(Accounts, "known", lambda self: {"sim": "ours", "box": "ours"})


def _frees_slots_at_terminate(patch: Patch) -> None:
    original = ledger.mark_releasing

    def release(conn: Connection, node_ids: Any, reason: str) -> None:
        original(conn, node_ids, reason)
        conn.execute(slots.delete().where(slots.c.node_id.in_(list(node_ids))))

    patch.setattr(ledger, "mark_releasing", release)


def _forgets_the_cost_of_closed_rows(patch: Patch) -> None:
    closed = (
        update(nodes)
        .where(nodes.c.id == bindparam("node"), nodes.c.state != NodeState.GONE)
        .values(state=NodeState.GONE, gone_at=db_now(), accrued_at=None, condition="gone")
    )
    patch.setattr(ledger, "_CLOSE", closed)


def _counts_the_cost_of_closed_rows_on(patch: Patch) -> None:
    age_h = (db_now() - nodes.c.intended_at) / 3600
    cost = select(func.coalesce(func.sum(nodes.c.billed_usd_per_hour * age_h), 0.0))
    patch.setattr(ledger, "_COST", cost.where(nodes.c.job_id == bindparam("job")))


# --- the reaper ------------------------------------------------------------------------------------------------------


def _reaps_at_first_sight(patch: Patch) -> None:
    patch.setattr(reaper, "SCANS_TO_BE_SURE", 1)
    patch.setattr(reaper.Reaper, "_recorded", lambda self, conn: set())


def _knows_nodes_by_name(patch: Patch) -> None:
    original = reaper.Reaper._sure_strangers

    async def sure_strangers(self: Any, rows: Any, views: Any) -> Any:
        names = {row.token for row in rows}
        return await original(self, rows, [view for view in views if view.token not in names])

    patch.setattr(reaper.Reaper, "_sure_strangers", sure_strangers)


# --- gangs -----------------------------------------------------------------------------------------------------------


def _starts_what_never_booted(patch: Patch) -> None:
    def is_ready(view: Any) -> bool:
        return all(node.handle is not None for node in view.members) and not gang_states.missing_ranks(view)

    for module in (gang_states, provisioning, recovering):
        patch.setattr(module, "is_ready", is_ready)


def _takes_silence_for_failure(patch: Patch) -> None:
    def decide_running(view: Any, now: Any) -> Any:
        if running.is_silent(view, now):
            return ends.lose(view, now, "node_lost", "it is silent")
        return running.decide(view, now)

    patch.setitem(deciding.BY_STATE, State.RUNNING, decide_running)


def _believes_the_clock_at_once(patch: Patch) -> None:
    patch.setattr(silence, "has_lasted", lambda _view, found, node, _now: node.id in found)


def _replaces_nodes_that_run(patch: Patch) -> None:
    original = ends._recover

    def recover(view: Any, now: Any, *args: Any, **named: Any) -> Settle:
        settled = original(view, now, *args, **named)
        return Settle(settled.change, [Release([one.id for one in view.members], "lost")], settled.memory)

    patch.setattr(ends, "_recover", recover)


def _starts_the_same_generation_again(patch: Patch) -> None:
    patch.setattr(gang_states, "next_generation", lambda view, members: view.job.generation)


def _judges_lost_nodes_before_success(patch: Patch) -> None:
    original = gang.verdict

    def verdict(facts: GangFacts) -> Verdict:
        lost = [node for node in facts.members if node.lost]
        return Verdict(Outcome.NODE_FAILURE, lost[0].node_id, reason="node_lost") if lost else original(facts)

    patch.setattr(gang, "verdict", verdict)


def _listens_to_twins(patch: Patch) -> None:
    patch.setattr(sync, "is_twin", lambda node, request: False)


def _overlooks_cancels(patch: Patch) -> None:
    for module in (queued, provisioning, starting, running, recovering):
        patch.setattr(module, "stop_if_asked", lambda view: None)


def _cancels_what_was_done(patch: Patch) -> None:
    for module in (running, provisioning):
        patch.setattr(module, "stop_if_done", lambda view: None)
    judged = gang.verdict

    def verdict(facts: GangFacts) -> Verdict:
        found = judged(facts)
        return Verdict(Outcome.RUNNING) if found.outcome is Outcome.DONE else found

    patch.setattr(gang, "verdict", verdict)


# --- what nodes are told, and what they tell --------------------------------------------------------------------------


def _commits_checkpoints_of_any_generation(patch: Patch) -> None:
    original = checkpoints.add_part

    def add_part(conn: Connection, job_id: str, generation: int, part: Any, *, num_nodes: int) -> bool:
        its = jobs_table.c.id == job_id
        current = conn.execute(select(jobs_table.c.generation).where(its)).scalar_one()
        conn.execute(update(jobs_table).where(its).values(generation=generation))
        committed: bool = original(conn, job_id, generation, part, num_nodes=num_nodes)
        conn.execute(update(jobs_table).where(its).values(generation=current))
        return committed

    patch.setattr(checkpoints, "add_part", add_part)


def _keeps_output_twice(patch: Patch) -> None:
    advance, add_chunk, times = journals.advance, logs.add_chunk, count()

    def forgetting(known: Any, request: Any) -> Any:
        node = replace(known.node, acknowledged=0)
        return advance(journals.Known(node, {}, known.gap_at, known.silent_s), request)

    def adding(conn: Connection, job_id: str, generation: int, journal: str, chunk: Any) -> bool:
        return add_chunk(conn, job_id, generation, f"{journal}-{next(times)}", chunk)

    patch.setattr(sync, "advance", forgetting)
    patch.setattr(logs, "add_chunk", adding)


def _acknowledges_what_it_does_not_keep(patch: Patch) -> None:
    patch.setattr(sync, "_archive", lambda conn, job_id, journal_id, told: None)


def _grants_no_lease(patch: Patch) -> None:
    patch.setattr(sync, "_lease", lambda node, now: Lease(stop_in_s=0.0))


def _grants_leases_unwritten(patch: Patch) -> None:
    heard = sync._HEARD
    patch.setattr(sync, "_HEARD", heard.values(lease_granted_until=null()))


def _keeps_the_budget_to_itself(patch: Patch) -> None:
    patch.setattr(gang_states, "stop_by", lambda view, now: None)


MUTANTS: Final = (
    Mutant("a step is applied whoever has the job by now", _without_fence, frozenset({3})),
    Mutant("a job is claimed while another worker has it", _claims_whatever_is_due, frozenset({3})),
    Mutant("a wake that comes during a step is lost", _forgets_a_wake_during_a_step, frozenset({1, 5})),
    Mutant("a change leaves no hint", _leaves_no_hint, frozenset({1})),
    Mutant("the intent is written after the create call", _creates_before_the_intent, frozenset({2})),
    Mutant("events are written in a transaction of their own", _tells_events_afterwards, frozenset({6})),
    Mutant("terminate is trusted without a read", _trusts_terminate, frozenset({2})),
    Mutant("a row is closed when its end takes too long", _closes_what_takes_too_long, frozenset({2})),
    Mutant("a row is closed without asking for its node", _closes_without_asking_for_the_node, frozenset({2})),
    Mutant("one listing is proof of absence", _one_listing_is_proof, frozenset({2, 4})),
    Mutant("absence counts before a node could be listed", _absence_counts_at_once, frozenset({2, 4})),
    Mutant("a listing of another account counts", _takes_every_account_for_its_own, frozenset({2, 4})),
    Mutant("slots are free at terminate and not at proof", _frees_slots_at_terminate, frozenset({2})),
    Mutant("a row that is closed forgets its cost", _forgets_the_cost_of_closed_rows, frozenset({7})),
    Mutant("a row that is closed goes on costing", _counts_the_cost_of_closed_rows_on, frozenset({7})),
    Mutant("the reaper gives no grace", _reaps_at_first_sight, frozenset({4})),
    Mutant("the reaper knows nodes by name", _knows_nodes_by_name, frozenset({2})),
    Mutant("a node is taken for ready that never booted", _starts_what_never_booted, frozenset({1, 5})),
    Mutant("silence is taken for failure", _takes_silence_for_failure, frozenset({4})),
    Mutant("a lease is over as soon as a clock says so", _believes_the_clock_at_once, frozenset({4})),
    Mutant("nodes are replaced while they run", _replaces_nodes_that_run, frozenset({3})),
    Mutant("a gang is started twice under one generation", _starts_the_same_generation_again, frozenset({1, 3, 5})),
    Mutant("a lost node counts for more than a success", _judges_lost_nodes_before_success, frozenset({3, 4, 5})),
    Mutant("twins are listened to", _listens_to_twins, frozenset({3})),
    Mutant("a cancel is overlooked", _overlooks_cancels, frozenset({5})),
    Mutant("a success that came before the cancel is overlooked", _cancels_what_was_done, frozenset({1, 5})),
    Mutant("checkpoints of any generation are committed", _commits_checkpoints_of_any_generation, frozenset({3})),
    Mutant("output that comes again is kept again", _keeps_output_twice, frozenset({6})),
    Mutant("what is acknowledged is not kept", _acknowledges_what_it_does_not_keep, frozenset({6})),
    Mutant("nodes get no lease", _grants_no_lease, frozenset({8})),
    Mutant("leases are not written down", _grants_leases_unwritten, frozenset({8})),
    Mutant("nodes do not know the budget", _keeps_the_budget_to_itself, frozenset({7})),
)
