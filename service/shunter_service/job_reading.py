"""Everything that the API shows of one job, read from one snapshot, and the tag that tells two states of it apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from shunter_store import events, gang, ledger, metrics
from shunter_store.events import TransitionRow
from shunter_store.gang import EndRow
from shunter_store.jobs import JobRow
from shunter_store.ledger import NodeRow
from shunter_store.metrics import ProgressRow
from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job's row, and what is kept beside it."""

    row: JobRow
    progress: Sequence[ProgressRow] = ()
    """By generation, oldest first."""
    nodes: Sequence[NodeRow] = ()
    moves: Sequence[TransitionRow] = ()
    ends: Sequence[EndRow] = ()
    cost_usd: float = 0.0

    @property
    def tag(self) -> str:
        """The `ETag`: the revision, and what else of the answer moves without one.

        Heartbeats and money that accrues move with every look; they alone make no new state.
        """
        moving = (
            [(row.generation, row.at, row.step) for row in self.progress],
            [_standing(node) for node in self.nodes],
            [(end.generation, end.node_id, end.ended) for end in self.ends],
        )
        return f'"{self.row.revision}-{sha256(repr(moving).encode()).hexdigest()[:16]}"'


def read_facts(conn: Connection, row: JobRow) -> JobFacts:
    """What is kept beside the row; what only nodes bring is not asked for where there was none."""
    nodes = ledger.of_job(conn, row.id)
    return JobFacts(
        row,
        progress=metrics.progress_by_generation(conn, row.id),
        nodes=nodes,
        moves=events.transitions(conn, row.id),
        ends=gang.ends(conn, row.id) if nodes else (),
        cost_usd=ledger.ledger_cost(conn, row.id) if nodes else 0.0,
    )


def _standing(node: NodeRow) -> tuple[object, ...]:
    return node.id, node.state, node.handle, node.billed_usd_per_hour, node.ready_at, node.gone_at, bool(node.boot)
