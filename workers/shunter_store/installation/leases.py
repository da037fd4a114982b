"""Leases for singletons (relay, sweep, scanners, reaper): one holder at a time, by the database's clock."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, or_, update

from shunter_store.sql.sqltypes import PerDialect, db_now, seconds
from shunter_store.tables import leases

_ACQUIRE = PerDialect(
    lambda insert: (
        insert(leases)
        .values(name=bindparam("name"), owner=bindparam("owner"), fence=1, until=db_now() + seconds("ttl_s"))
        .on_conflict_do_update(
            index_elements=[leases.c.name],
            set_={
                "owner": bindparam("owner"),
                "fence": leases.c.fence + 1,
                "until": db_now() + seconds("ttl_s"),
            },
            # A lease far in the future is one that a clock jump left behind.
            where=or_(
                leases.c.owner.is_(None),
                leases.c.until < db_now(),
                leases.c.until > db_now() + 2 * seconds("ttl_s"),
            ),
        )
        .returning(leases.c.fence)
    )
)
_HELD = (
    (leases.c.name == bindparam("held")) & (leases.c.owner == bindparam("holder")) & (leases.c.fence == bindparam("at"))
)
_RENEW = update(leases).where(_HELD, leases.c.until >= db_now()).values(until=db_now() + seconds("ttl_s"))
_RELEASE = update(leases).where(_HELD).values(owner=None, until=None)


def acquire(conn: Connection, name: str, owner: str, ttl_s: float) -> int | None:
    """Take the lease if nobody holds it (not even `owner` itself, who renews). Returns its fence, or None."""
    return conn.execute(_ACQUIRE.on(conn), {"name": name, "owner": owner, "ttl_s": ttl_s}).scalar()


def renew(conn: Connection, name: str, owner: str, fence: int, ttl_s: float) -> bool:
    """Keep the lease. False: it ran out or is another's; stop acting on it at once."""
    return conn.execute(_RENEW, {"held": name, "holder": owner, "at": fence, "ttl_s": ttl_s}).rowcount == 1


def release(conn: Connection, name: str, owner: str, fence: int) -> None:
    """Give the lease back; nothing happens when it is another's by now."""
    conn.execute(_RELEASE, {"held": name, "holder": owner, "at": fence})
