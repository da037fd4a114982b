"""Jobs as they stand: their rows and what is kept beside them, for any number of jobs at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from shunter_schemas.states import State
from sqlalchemy import Column, Connection, Table, select

from shunter_store.job.documents import DocumentRow
from shunter_store.job.events import TransitionRow
from shunter_store.job.jobs import JobRow
from shunter_store.job.lifecycle import Trigger
from shunter_store.node.gang import End, EndRow
from shunter_store.node.ledger_rows import COST_USD, NodeRow
from shunter_store.report.first_points import FirstPoint, first_points
from shunter_store.report.metrics import ProgressRow
from shunter_store.sql.bulk import ByKeys
from shunter_store.sql.rows import columns_of
from shunter_store.tables import gang_nodes, job_documents, jobs, nodes, progress, transitions

R = TypeVar("R")
_RECOVERIES: Final = 3
"""Of each job, so that one with many costs no more to show than others."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A job's row, and what is kept beside it."""

    row: JobRow
    progress: Sequence[ProgressRow] = ()
    """By generation, oldest first."""
    nodes: Sequence[NodeRow] = ()
    """In the order they were intended."""
    moves: Sequence[TransitionRow] = ()
    """Oldest first."""
    ends: Sequence[EndRow] = ()
    """Oldest generation first."""
    cost_usd: float = 0.0
    documents: Sequence[DocumentRow] = ()
    """Those that moves replaced, oldest first."""
    first_points: Mapping[int, FirstPoint] = field(default_factory=dict)
    """By generation, of the last few that followed a loss."""


def _of_jobs(cls: type[Any], table: Table, *order: Column[Any]) -> ByKeys:
    """The rows of these jobs, each behind its job's id."""
    columns = columns_of(cls, table)
    return ByKeys(lambda asked: select(table.c.job_id, *columns).where(asked(table.c.job_id)).order_by(*order))


_ROWS: Final = ByKeys(lambda asked: select(jobs.c.id, *columns_of(JobRow, jobs)[1:]).where(asked(jobs.c.id)))
_PROGRESS: Final = _of_jobs(ProgressRow, progress, progress.c.job_id, progress.c.generation)
_NODES: Final = _of_jobs(NodeRow, nodes, nodes.c.job_id, nodes.c.intended_at, nodes.c.rank)
_MOVES: Final = _of_jobs(TransitionRow, transitions, transitions.c.job_id, transitions.c.seq)
_ENDS: Final = _of_jobs(EndRow, gang_nodes, gang_nodes.c.job_id, gang_nodes.c.generation, gang_nodes.c.node_id)
_DOCUMENTS: Final = _of_jobs(DocumentRow, job_documents, job_documents.c.job_id, job_documents.c.version)
_COSTS: Final = ByKeys(
    lambda asked: select(nodes.c.job_id, COST_USD).where(asked(nodes.c.job_id)).group_by(nodes.c.job_id)
)


def of_jobs(conn: Connection, job_ids: Collection[str]) -> dict[str, Standing]:
    """How these jobs stand; those that do not exist are left out."""
    rows = [JobRow(*row) for row in _ROWS.run(conn, job_ids)]
    return {standing.row.id: standing for standing in _beside(conn, rows)}


def of_row(conn: Connection, row: JobRow) -> Standing:
    """How a job stands whose row is known."""
    return _beside(conn, [row])[0]


def _beside(conn: Connection, rows: Sequence[JobRow]) -> list[Standing]:
    """What only nodes or moves bring is not asked for where there was none."""
    ids = [row.id for row in rows]
    its_nodes = _grouped(NodeRow, _NODES, conn, ids)
    ends = _grouped(EndRow, _ENDS, conn, its_nodes)
    documents = _grouped(DocumentRow, _DOCUMENTS, conn, [row.id for row in rows if row.document_version > 1])
    costs = dict(_COSTS.run(conn, its_nodes)) if its_nodes else {}
    progress_, moves = _grouped(ProgressRow, _PROGRESS, conn, ids), _grouped(TransitionRow, _MOVES, conn, ids)
    return [
        Standing(
            row,
            progress=progress_.get(row.id, ()),
            nodes=its_nodes.get(row.id, ()),
            moves=moves.get(row.id, ()),
            ends=[_typed(end) for end in ends.get(row.id, ())],
            cost_usd=float(costs.get(row.id, 0.0)),
            documents=documents.get(row.id, ()),
            first_points=first_points(conn, row.id, _recovered(moves.get(row.id, ()))),
        )
        for row in rows
    ]


def _recovered(moves: Sequence[TransitionRow]) -> list[int]:
    """The newest generations that were started after a loss."""
    lost = next((place for place, move in enumerate(moves) if move.trigger is Trigger.NODE_LOST), len(moves))
    return [move.generation for move in moves[lost:] if move.to_state is State.STARTING][-_RECOVERIES:]


def _grouped(cls: type[R], statement: ByKeys, conn: Connection, ids: Collection[str]) -> dict[str, list[R]]:
    """The rows by their jobs' ids, where there are any."""
    found: dict[str, list[R]] = {}
    if ids:
        for job_id, *values in statement.run(conn, ids):
            found.setdefault(job_id, []).append(cls(*values))
    return found


def _typed(end: EndRow) -> EndRow:
    return end if end.ended is None else replace(end, ended=End(end.ended))
