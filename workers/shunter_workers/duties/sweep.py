"""Finds what nobody told of: rows that are due though a hint was lost, and nodes that fell silent."""

from __future__ import annotations

from typing import Final

from shunter_schemas.states import Health, NodeState, State
from shunter_store.job import due
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now, seconds
from shunter_store.tables import job_due, jobs, nodes
from sqlalchemy import Connection, select

from shunter_workers.hints import Hints

EVERY_S: Final = 2.0
AT_ONCE: Final = 100
"""Silent jobs that one round wakes. Where the service itself was away thousands seem silent, and most are back before
their turn comes."""

_SILENT = (
    select(jobs.c.id)
    # From the open rows of the ledger: there are as many as nodes, whatever the number of jobs and nodes that ended.
    .select_from(nodes.join(jobs, jobs.c.id == nodes.c.job_id).join(job_due, job_due.c.job_id == jobs.c.id))
    .where(
        nodes.c.state != NodeState.GONE,
        jobs.c.state == State.RUNNING,
        jobs.c.health == Health.OK,
        nodes.c.state == NodeState.READY,
        nodes.c.last_sync_at < db_now() - seconds("for_s"),
    )
    .distinct()
    .limit(AT_ONCE)
)


class Sweep:
    """Republishes hints, bounded; correctness holds with every hint lost, this only makes it quick."""

    def __init__(self, database: Database, hints: Hints, *, lease_s: float, unreachable_after_s: float) -> None:
        self._database = database
        self._hints = hints
        self._lease_s = lease_s
        self._unreachable_after_s = unreachable_after_s

    async def work(self) -> float:
        """One round."""
        silent = await self._database.aread(self._silent)
        if silent:
            await self._database.awrite(lambda conn: due.wake(conn, silent))
        waiting = await self._database.aread(lambda conn: due.count_due(conn, lease_s=self._lease_s))
        if waiting:
            await self._hints.publish(waiting)
        return EVERY_S

    def _silent(self, conn: Connection) -> list[str]:
        return list(conn.execute(_SILENT, {"for_s": self._unreachable_after_s}).scalars())
