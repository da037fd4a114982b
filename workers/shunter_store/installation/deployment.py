"""Who this installation is: the mark on everything that it makes, and whether it may end what it does not know.

A database that was restored lacks what was done after the backup: nodes of jobs that train may be strangers to it. So
with a new install nonce the reaper only reports until an operator confirms. Two things make a new nonce: `shunter
restore`, and `witness`, which finds by its epoch that a database went back in time.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime

from shunter_schemas.ids import new_deployment_id
from sqlalchemy import Connection, bindparam, null, select, update

from shunter_store.installation import notices
from shunter_store.sql.rows import columns_of
from shunter_store.sql.sqltypes import PerDialect, db_now
from shunter_store.tables import deployment


@dataclass(frozen=True, slots=True)
class Deployment:
    """`id` is in every node's token; a new `install_nonce` tells a restored copy from the original."""

    id: str
    install_nonce: str
    created_at: datetime
    confirmed_nonce: str | None
    """The nonce for which an operator said, or the first start knew, that the ledger is complete."""
    epoch: int
    """Grows while workers live."""
    held_at: datetime | None
    held_reason: str | None
    confirmed_at: datetime | None
    confirmed_by: str | None

    @property
    def reaping_is_held(self) -> bool:
        """Whether nodes that the ledger does not know are reported only."""
        return self.confirmed_nonce != self.install_nonce


_SELECT = select(*columns_of(Deployment, deployment)).order_by(deployment.c.created_at, deployment.c.id).limit(1)
_INSERT = PerDialect(
    lambda insert: insert(deployment).values(single=True, created_at=db_now(), epoch=0).on_conflict_do_nothing()
)
_ADVANCE = update(deployment).values(epoch=deployment.c.epoch + 1)
_HOLD = (
    update(deployment)
    .where(deployment.c.id == bindparam("of"))
    .values(install_nonce=bindparam("new_nonce"), held_at=db_now(), held_reason=bindparam("why"))
)
_LEAP = update(deployment).where(deployment.c.id == bindparam("of")).values(epoch=bindparam("least"))
_CONFIRM = (
    update(deployment)
    .where(deployment.c.id == bindparam("of"))
    .values(
        confirmed_nonce=deployment.c.install_nonce,
        confirmed_at=db_now(),
        confirmed_by=bindparam("who"),
        held_at=null(),
        held_reason=null(),
    )
)


def get_or_create(conn: Connection) -> Deployment:
    """The one row; made at the first start, and the same for everybody however many start at once."""
    found = conn.execute(_SELECT).one_or_none()
    if found is None:
        nonce = secrets.token_hex(16)
        conn.execute(_INSERT.on(conn), {"id": new_deployment_id(), "install_nonce": nonce, "confirmed_nonce": nonce})
        found = conn.execute(_SELECT).one()
    return Deployment(*found)


def find(conn: Connection) -> Deployment | None:
    """The one row, where there is one."""
    row = conn.execute(_SELECT).one_or_none()
    return None if row is None else Deployment(*row)


def advance(conn: Connection) -> None:
    """One epoch more."""
    conn.execute(_ADVANCE)


def witness(conn: Connection, seen_id: str, seen_epoch: int) -> Deployment:
    """The row, after it was compared with what somebody saw of it before.

    An epoch that is lower than it was means that the database was restored from a copy: reaping is held then. Two
    witnesses of one restore hold it once, since the first one lifts the epoch to what it had seen.
    """
    found = get_or_create(conn)
    if seen_id != found.id or seen_epoch <= found.epoch:
        return found
    told = f"the database is older than it was: it is at epoch {found.epoch}, and was at {seen_epoch} before"
    hold(conn, told, by="worker")
    conn.execute(_LEAP, {"of": found.id, "least": seen_epoch})
    return get_or_create(conn)


def hold(conn: Connection, reason: str, *, by: str) -> None:
    """From now on nodes that the ledger does not know are reported only. Holding what is held changes nothing."""
    found = get_or_create(conn)
    if found.reaping_is_held:
        return
    conn.execute(_HOLD, {"of": found.id, "new_nonce": secrets.token_hex(16), "why": reason})
    notices.put(conn, "reaping.held", {"reason": reason, "by": by})


def confirm(conn: Connection, *, by: str) -> None:
    """The ledger is complete: what it does not know may be ended again. Confirming twice changes nothing."""
    found = get_or_create(conn)
    if found.reaping_is_held:
        conn.execute(_CONFIRM, {"of": found.id, "who": by})
        notices.put(conn, "reaping.confirmed", {"by": by})
