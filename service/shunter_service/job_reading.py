"""Reading jobs for answers: all that are asked for at one moment in one transaction, and the tag of what was read."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from shunter_store.job import standings
from shunter_store.job.standings import Standing
from shunter_store.node.ledger import NodeRow
from shunter_store.sql.database import Database

from shunter_service.node.gathering import Gathering

JobReader = Gathering[str, Standing | None]
"""Asks for a job by its id; None: it does not exist."""


def job_reader(db: Database) -> JobReader:
    """Reads jobs as they stand at some moment after they were asked for."""

    async def read(ids: Sequence[str]) -> Sequence[Standing | None]:
        found = await db.aread(lambda conn: standings.of_jobs(conn, set(ids)))
        return [found.get(job_id) for job_id in ids]

    return Gathering(read, at_once=2)


def tag(standing: Standing) -> str:
    """The `ETag`: the revision, and what else of the answer moves without one.

    Heartbeats and money that accrues move with every look; they alone make no new state.
    """
    moving = (
        [(row.generation, row.at, row.step) for row in standing.progress],
        [_of_node(node) for node in standing.nodes],
        [(end.generation, end.node_id, end.ended) for end in standing.ends],
    )
    return f'"{standing.row.revision}-{sha256(repr(moving).encode()).hexdigest()[:16]}"'


def _of_node(node: NodeRow) -> tuple[object, ...]:
    return node.id, node.state, node.handle, node.billed_usd_per_hour, node.ready_at, node.gone_at, bool(node.boot)
