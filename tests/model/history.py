"""Watches every claim, every applied step, every machine that comes or is asked to go, and every gang that starts, and
holds each against the promises at that moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from shunter_providers.contract import Intent
from shunter_schemas.states import NodeState, State
from shunter_store.job import due, jobs, steps
from shunter_store.job.due import Claim
from shunter_store.job.jobs import JobRow
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change
from shunter_store.node.ledger import NodeRow
from shunter_store.node.ledger_rows import COLUMNS
from shunter_store.tables import gang_nodes, nodes
from sqlalchemy import Connection, bindparam, select

from model.agents import Agent
from model.cloud import Machine
from model.verdicts import Broken
from model.workers import LEASE_S

if TYPE_CHECKING:
    from model.world import World

Apply = Callable[[Connection, Claim, Change], JobRow]
_BY_TOKEN = select(*COLUMNS).where(nodes.c.token == bindparam("its_token"))
_MEMBERS = select(*COLUMNS).where(
    nodes.c.job_id == bindparam("job"), nodes.c.run_generation == bindparam("of_generation")
)
_ENDS = select(gang_nodes.c.node_id, gang_nodes.c.ended).where(
    gang_nodes.c.job_id == bindparam("job"), gang_nodes.c.generation == bindparam("of_generation")
)
_RUNS = frozenset({State.STARTING, State.RUNNING})


class History:
    """What happened so far, as far as promises speak of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._fences: dict[str, int] = {}
        self._held_until: dict[str, float] = {}
        self._started: dict[tuple[str, int, int], str] = {}
        self._gangs: dict[tuple[str, int], frozenset[str]] = {}
        """The nodes of each generation of a job: a row only tells of the last one that its node ran."""

        self.first: Broken | None = None
        """What was broken first. Plugins' callers swallow exceptions, so raising it is not enough."""

    def watch_steps(self, patch: pytest.MonkeyPatch) -> None:
        """Be told of every step that is applied, and of every claim that one leaves to the next."""
        original, claim_again = steps.apply, due.claim_again

        def claiming(conn: Connection, job_id: str, **named: Any) -> Claim | None:
            claim = claim_again(conn, job_id, **named)
            if claim is not None:
                self._world.database.on_commit.append(partial(self.note_claims, [claim]))
            return claim

        patch.setattr(steps, "apply", lambda conn, claim, change: self._applied(original, conn, claim, change))
        patch.setattr(due, "claim_again", claiming)

    def note_claims(self, claims: Sequence[Claim]) -> None:
        """A job has one holder at a time, and its fence only grows."""
        now = self._world.clock.now
        for claim in claims:
            held_until = self._held_until.get(claim.job_id, 0.0)
            self._require(3, held_until < now, f"{claim.job_id} was claimed while another worker's lease lasts")
            self._require(
                3, claim.fence > self._fences.get(claim.job_id, 0), f"the fence of {claim.job_id} did not grow"
            )
            self._fences[claim.job_id] = claim.fence
            self._held_until[claim.job_id] = now + LEASE_S

    def _applied(self, original: Apply, conn: Connection, claim: Claim, change: Change) -> JobRow:
        before = jobs.get(conn, claim.job_id)
        assert before is not None
        after = original(conn, claim, change)
        self._require(3, claim.fence == self._fences[claim.job_id], f"a stale step of {claim.job_id} was applied")
        self._world.database.on_commit.append(partial(self._free, claim.job_id))
        if change.trigger is Trigger.NODE_LOST and before.state in _RUNS:
            members = _members(conn, before.id, before.generation)
            self._require(
                4, any(self._is_broken(row, before.generation) for row in members), f"{before.id} was healthy"
            )
        if before.outcome is None and after.outcome is not None:
            self._judge_outcome(conn, before, after)
        if after.generation > before.generation:
            done = self._all_done(conn, before.id, before.generation)
            what = f"generation {before.generation} of {before.id} had succeeded and {after.generation} is begun"
            self._require(3, not done, what)
        if members := _members(conn, after.id, after.generation):
            ids = frozenset(row.id for row in members)
            self._world.database.on_commit.append(partial(self._gangs.__setitem__, (after.id, after.generation), ids))
        return after

    def _free(self, job_id: str) -> None:
        self._held_until.pop(job_id, None)

    def _judge_outcome(self, conn: Connection, before: JobRow, after: JobRow) -> None:
        if after.outcome is State.CANCELLED:
            self._require(
                5, not self._all_done(conn, after.id, after.generation), f"{after.id} had succeeded and is cancelled"
            )
        if before.cancel_requested_at is not None:
            self._require(
                5, after.outcome is not State.FAILED, f"{after.id} was cancelled and fails for {after.reason}"
            )

    def _all_done(self, conn: Connection, job_id: str, generation: int) -> bool:
        """Whether every node that was told to run the generation has said that it is done."""
        found = conn.execute(_ENDS, {"job": job_id, "of_generation": generation})
        done = {row.node_id for row in found if row.ended == "done"}
        now = frozenset(row.id for row in _members(conn, job_id, generation))
        members = self._gangs.get((job_id, generation), frozenset()) | now
        return bool(members) and members <= done

    def _is_broken(self, row: NodeRow, generation: int) -> bool:
        """Whether the ranks there have really ended."""
        machine = self._world.cloud.machines.get(row.handle or "")
        if machine is None or not machine.exists(self._world.clock.now):
            return True
        agent = self._world.agents.get(machine.handle)
        if agent is None:
            return False
        ended = agent.newest >= generation and agent.running != generation
        return ended or self._world.clock.now >= agent.lease_until

    def _require(self, number: int, holds: object, detail: str) -> None:
        if not holds:
            self.first = self.first or Broken(number, detail)
            raise self.first

    # --- machines ------------------------------------------------------------------------------------------------

    def note_create(self, intent: Intent, instance: str) -> None:
        """A machine comes to be."""
        row = self._world.database.read(lambda conn: by_token(conn, intent.token))
        begun = row is not None and row.create_deadline_at is not None
        self._require(2, begun, f"a node of {instance} was made for {intent.token}, of which no row was committed")
        assert row is not None
        assert row.create_deadline_at is not None
        in_time = self._world.clock.moment <= row.create_deadline_at
        too_soon = in_time and row.state is NodeState.GONE
        self._require(2, not too_soon, f"{row.id} was closed while its create call could still be carried out")

    def note_terminate(self, machine: Machine) -> None:
        """A machine's end is asked for: that is its job's business, unless no row speaks for it."""
        row = self._world.database.read(lambda conn: by_token(conn, machine.token))
        if row is None or row.state in (NodeState.RELEASING, NodeState.GONE):
            return
        self._require(
            4, row.handle not in (None, machine.handle), f"{machine.handle} was ended, which {row.id} speaks for"
        )

    # --- gangs ---------------------------------------------------------------------------------------------------

    def note_start(self, agent: Agent, generation: int) -> None:
        """Ranks begin on a machine."""
        machine, job_id = agent.machine, agent.job_id
        key = (job_id, generation, agent.node_rank)
        self._require(3, key not in self._started, f"rank {key[2]} of generation {generation} started twice")
        self._started[key] = machine.handle
        row = self._world.database.read(lambda conn: by_token(conn, machine.token))
        is_its_own = row is not None and row.handle in (None, machine.handle)
        self._require(3, is_its_own, f"{machine.handle} started, which is not the machine of its row")
        newer = [of for job, of, _ in self._started if job == job_id and of > generation]
        self._require(3, not newer, f"generation {generation} started after {newer}")
        self._require_no_other_gang(agent, generation)

    def _require_no_other_gang(self, agent: Agent, generation: int) -> None:
        """Nobody outside of the gang runs ranks of the job, and nobody has this rank."""
        members = self._world.database.read(lambda conn: _members(conn, agent.job_id, generation))
        tokens = {row.token for row in members}
        now = self._world.clock.now
        for other in self._world.agents.values():
            runs = other.running is not None and other.machine.exists(now)
            if other is agent or other.job_id != agent.job_id or not runs:
                continue
            same_rank = other.node_rank == agent.node_rank
            outside = other.machine.token not in tokens
            what = f"{other.machine.handle} runs generation {other.running} while {generation} starts"
            self._require(3, not (same_rank or outside), what)


def by_token(conn: Connection, token: str) -> NodeRow | None:
    """The row of an intent."""
    row = conn.execute(_BY_TOKEN, {"its_token": token}).one_or_none()
    return None if row is None else NodeRow(*row)


def _members(conn: Connection, job_id: str, generation: int) -> list[NodeRow]:
    return [NodeRow(*row) for row in conn.execute(_MEMBERS, {"job": job_id, "of_generation": generation})]
