"""Takes leases away from holders of this machine that were killed, so that nobody waits for them to run out.

Safe without being right about it: a claim is guarded by its fence, a singleton's work may overlap for a moment.
"""

from __future__ import annotations

import logging

from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import job_due, leases
from sqlalchemy import Connection, bindparam, select, update

from shunter_workers.owners import dead_among

_log = logging.getLogger(__name__)

_CLAIMANTS = select(job_due.c.lease_owner).where(job_due.c.lease_until >= db_now()).distinct()
_HOLDERS = select(leases.c.owner).where(leases.c.owner.is_not(None)).distinct()
_FREE_CLAIMS = (
    update(job_due)
    .where(job_due.c.lease_owner.in_(bindparam("dead", expanding=True)))
    .values(lease_owner=None, lease_until=None, next_at=db_now())
)
_FREE_LEASES = (
    update(leases).where(leases.c.owner.in_(bindparam("dead", expanding=True))).values(owner=None, until=None)
)


class Undertaker:
    """Every process looks by itself: the singletons' own leases may be what a dead process holds."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def work(self) -> None:
        """One look."""
        dead = await self._database.aread(find_dead)
        if dead:
            freed = await self._database.awrite(lambda conn: bury(conn, dead))
            _log.info("freed what %d killed processes held; %d jobs of theirs are due", len(dead), freed)


def find_dead(conn: Connection) -> list[str]:
    """Holders of claims and leases that are dead for certain."""
    owners = {*conn.execute(_CLAIMANTS).scalars(), *conn.execute(_HOLDERS).scalars()} - {None}
    return sorted(dead_among(owners))


def bury(conn: Connection, dead: list[str]) -> int:
    """Free what they hold; returns how many jobs became due."""
    conn.execute(_FREE_LEASES, {"dead": dead})
    return conn.execute(_FREE_CLAIMS, {"dead": dead}).rowcount
