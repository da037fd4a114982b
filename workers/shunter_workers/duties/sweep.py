"""Finds what nobody told of: rows that are due though a hint was lost, and nodes that fell silent."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

from shunter_schemas.states import Health, NodeState, State
from shunter_store import due
from shunter_store.database import Database
from shunter_store.setbacks import NOTABLE_S, follow_jump
from shunter_store.sqltypes import clock_of, db_now, seconds
from shunter_store.tables import job_due, jobs, nodes
from sqlalchemy import Connection, select

from shunter_workers.hints import Hints

EVERY_S: Final = 2.0
AT_ONCE: Final = 100
"""Silent jobs that one round wakes. Where the service itself was away thousands seem silent, and most are back before
their turn comes."""
LOOKS_WITHIN_S: Final = 5.0
FOLLOWS_WITHIN_S: Final = 60.0

_log = logging.getLogger(__name__)

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


@dataclass(frozen=True, slots=True)
class _Look:
    """What two clocks said at one moment: the database's, and one that nobody sets. Seconds."""

    by_database: float
    began: float

    def follows(self, before: _Look) -> bool:
        """Whether it came soon after; else somebody else may have swept in between, and have seen the same."""
        return self.began - before.began < FOLLOWS_WITHIN_S

    def ahead_s(self, before: _Look) -> float:
        """How much more has passed by the database's clock, since then, than really has."""
        return (self.by_database - before.by_database) - (self.began - before.began)


class Sweep:
    """Republishes hints, bounded; correctness holds with every hint lost, this only makes it quick."""

    def __init__(self, database: Database, hints: Hints, *, lease_s: float, unreachable_after_s: float) -> None:
        self._database = database
        self._hints = hints
        self._lease_s = lease_s
        self._unreachable_after_s = unreachable_after_s
        self._looked: _Look | None = None

    async def work(self) -> float:
        """One round."""
        await self._mind_the_clock()
        silent = await self._database.aread(self._silent)
        if silent:
            await self._database.awrite(lambda conn: due.wake(conn, silent))
        waiting = await self._database.aread(lambda conn: due.count_due(conn, lease_s=self._lease_s))
        if waiting:
            await self._hints.publish(waiting)
        return EVERY_S

    async def _mind_the_clock(self) -> None:
        """Where the database's clock was set, what waits for a moment would wait for hours, or what is counted from one
        would count hours: both move with it."""
        before, look = self._looked, await self._look()
        if before is not None and look is not None and look.follows(before):
            by_s, within_s = look.ahead_s(before), look.began - before.began + LOOKS_WITHIN_S
            if abs(by_s) >= NOTABLE_S:
                woken = await self._database.awrite(lambda conn: follow_jump(conn, by_s=by_s, within_s=within_s))
                _log.warning("the database's clock went %+.0f s: %s jobs look anew", by_s, woken)
        self._looked = look

    async def _look(self) -> _Look | None:
        """None: it took so long, since this process stood still perhaps, that it says nothing."""
        began = time.monotonic()
        now = await self._database.aread(clock_of)
        return _Look(now.timestamp(), began) if time.monotonic() - began < LOOKS_WITHIN_S else None

    def _silent(self, conn: Connection) -> list[str]:
        return list(conn.execute(_SILENT, {"for_s": self._unreachable_after_s}).scalars())
