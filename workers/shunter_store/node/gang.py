"""What a gang did so far, and the verdict over it: one pure function."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from shunter_schemas.node_sync import Phase
from shunter_schemas.states import FailureClass, NodeState
from sqlalchemy import Connection, and_, bindparam, func, or_, select

from shunter_store.sql.rows import all_of, columns_of
from shunter_store.tables import gang_nodes, gang_ranks, nodes


class End(StrEnum):
    """How a node's part of a generation ended."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node's part of a generation."""

    node_id: str
    node_rank: int
    state: NodeState
    condition: str | None
    member: bool
    """Whether it was told to run this generation; others only have to be drained."""
    drained: bool
    """No rank runs there and nothing is left to upload."""
    ended: End | None = None
    ended_at: datetime | None = None
    rank: int | None = None
    failure_class: FailureClass | None = None
    reason: str = ""
    message: str = ""
    exit_code: int | None = None

    @property
    def lost(self) -> bool:
        """Proven gone, or its provider says that it does not run."""
        return self.state is NodeState.GONE or self.condition in _DOWN


@dataclass(frozen=True, slots=True)
class GangFacts:
    """All that is known of one generation of a job."""

    job_id: str
    generation: int
    ranks_up: int
    world_size: int
    """As assigned; 0 before anything was."""
    nodes: tuple[NodeFacts, ...]

    @property
    def members(self) -> tuple[NodeFacts, ...]:
        return tuple(node for node in self.nodes if node.member)

    @property
    def all_up(self) -> bool:
        """Every rank joined; a node that is done counts for its ranks."""
        return bool(self.members) and (
            self.ranks_up >= self.world_size > 0 or all(node.ended is End.DONE for node in self.members)
        )


@dataclass(frozen=True, slots=True)
class EndRow:
    """How one node's part of one generation ended, as far as it told."""

    generation: int
    node_id: str
    ended: End | None
    ended_at: datetime | None
    rank: int | None
    failure_class: FailureClass | None
    reason: str | None
    message: str | None
    exit_code: int | None


class Outcome(StrEnum):
    """What a gang amounts to."""

    RUNNING = "running"
    DONE = "done"
    USER_FAILURE = "user_failure"
    NODE_FAILURE = "node_failure"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome, and for failures who failed first and why."""

    outcome: Outcome
    node_id: str | None = None
    rank: int | None = None
    reason: str = ""
    message: str = ""
    exit_code: int | None = None


_DOWN: Final = frozenset({"stopped", "failed", "gone"})

_A_CONSEQUENCE: Final = "peer_lost"
"""The reason of a rank that failed because another one vanished: never the first cause if there is another."""


def verdict(facts: GangFacts) -> Verdict:
    """Judge a gang. All done is final, even when nodes are gone by now; else the first cause of a failure counts."""
    members = facts.members
    if members and all(node.ended is End.DONE for node in members):
        return Verdict(Outcome.DONE, message=next((node.message for node in members if node.message), ""))
    failed = [node for node in members if node.ended is End.FAILED]
    if failed:
        return _failure(min(failed, key=_blame))
    lost = [node for node in members if node.lost and node.ended is not End.DONE]
    if lost:
        first = min(lost, key=lambda node: node.node_rank)
        return Verdict(Outcome.NODE_FAILURE, first.node_id, reason="node_lost", message=_lost_message(first))
    stopped = [node for node in members if node.ended is End.STOPPED]
    if stopped:
        first = min(stopped, key=_blame)
        return Verdict(Outcome.STOPPED, first.node_id, first.rank, first.reason, first.message, first.exit_code)
    return Verdict(Outcome.RUNNING)


def gang_facts(conn: Connection, job_id: str, generation: int) -> GangFacts:
    """Collect the facts of one generation."""
    key = {"job": job_id, "of_generation": generation}
    rows = conn.execute(_NODES, key).all()
    return GangFacts(
        job_id=job_id,
        generation=generation,
        ranks_up=conn.execute(_RANKS_UP, key).scalar_one(),
        world_size=max((world_size(row.assignment) for row in rows if row.run_generation == generation), default=0),
        nodes=tuple(_node_facts(row, generation) for row in rows),
    )


def ends(conn: Connection, job_id: str) -> list[EndRow]:
    """What nodes told of the end of each generation, oldest generation first."""
    rows = all_of(EndRow, conn.execute(_ENDS, {"job": job_id}))
    return [row if row.ended is None else replace(row, ended=End(row.ended)) for row in rows]


def world_size(assignment: dict[str, Any] | None) -> int:
    """How many ranks the assignment's gang has; 0 without one."""
    ranks = (assignment or {}).get("ranks") or {}
    return int(ranks.get("world_size", 0))


def _failure(node: NodeFacts) -> Verdict:
    outcome = Outcome.NODE_FAILURE if node.failure_class is FailureClass.NODE else Outcome.USER_FAILURE
    return Verdict(outcome, node.node_id, node.rank, node.reason, node.message, node.exit_code)


def _blame(node: NodeFacts) -> tuple[bool, bool, float, int]:
    """Causes before consequences, the user's before the machine's, then the earlier by the nodes' clocks."""
    at = node.ended_at.timestamp() if node.ended_at else float("inf")
    return node.reason == _A_CONSEQUENCE, node.failure_class is FailureClass.NODE, at, node.node_rank


def _lost_message(node: NodeFacts) -> str:
    return f"node {node.node_rank} is {node.condition or node.state}"


_ENDS = (
    select(*columns_of(EndRow, gang_nodes))
    .where(gang_nodes.c.job_id == bindparam("job"))
    .order_by(gang_nodes.c.generation, gang_nodes.c.node_id)
)
_RANKS_UP = (
    select(func.count())
    .select_from(gang_ranks)
    .where(gang_ranks.c.job_id == bindparam("job"), gang_ranks.c.generation == bindparam("of_generation"))
)
_NODES = (
    select(
        nodes.c.id,
        nodes.c.rank.label("node_rank"),
        nodes.c.state,
        nodes.c.condition,
        nodes.c.run_generation,
        nodes.c.desired_phase,
        nodes.c.desired_at,
        nodes.c.last_sync_at,
        nodes.c.status,
        nodes.c.assignment,
        gang_nodes.c.ended,
        gang_nodes.c.ended_at,
        gang_nodes.c.rank,
        gang_nodes.c.failure_class,
        gang_nodes.c.reason,
        gang_nodes.c.message,
        gang_nodes.c.exit_code,
        gang_nodes.c.drained_at,
    )
    .select_from(
        nodes.outerjoin(
            gang_nodes,
            and_(
                gang_nodes.c.node_id == nodes.c.id,
                gang_nodes.c.job_id == nodes.c.job_id,
                gang_nodes.c.generation == bindparam("of_generation"),
            ),
        )
    )
    .where(
        nodes.c.job_id == bindparam("job"),
        or_(nodes.c.run_generation == bindparam("of_generation"), nodes.c.state != NodeState.GONE),
    )
    .order_by(nodes.c.rank, nodes.c.intended_at)
)


def _node_facts(row: Any, generation: int) -> NodeFacts:
    return NodeFacts(
        node_id=row.id,
        node_rank=row.node_rank,
        state=row.state,
        condition=row.condition,
        member=row.run_generation == generation,
        drained=_drained(row, generation),
        ended=None if row.ended is None else End(row.ended),
        ended_at=row.ended_at,
        rank=row.rank,
        failure_class=row.failure_class,
        reason=row.reason or "",
        message=row.message or "",
        exit_code=row.exit_code,
    )


def _drained(row: Any, generation: int) -> bool:
    """A `drained` record of the generation; or a status to that effect, sent after the node was told to stop."""
    if row.drained_at is not None:
        return True
    heard = row.last_sync_at is not None and row.last_sync_at > row.desired_at
    if row.desired_phase not in (Phase.STOP, Phase.RELEASE) or not heard:
        return False
    phase, reached = row.status.get("phase"), row.status.get("generation", 0)
    return bool(phase == "idle" or (phase == "drained" and reached >= row.run_generation))
