"""Who this installation is: the mark on everything that it makes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime

from shunter_schemas.ids import new_deployment_id
from sqlalchemy import Connection, select

from shunter_store.rows import columns_of
from shunter_store.sqltypes import PerDialect, db_now
from shunter_store.tables import deployment


@dataclass(frozen=True, slots=True)
class Deployment:
    """`id` is in every node's token; a new `install_nonce` tells a restored copy from the original."""

    id: str
    install_nonce: str
    created_at: datetime


_SELECT = select(*columns_of(Deployment, deployment)).order_by(deployment.c.created_at, deployment.c.id).limit(1)
_INSERT = PerDialect(
    lambda insert: insert(deployment).values(single=True, created_at=db_now()).on_conflict_do_nothing()
)


def get_or_create(conn: Connection) -> Deployment:
    """The one row; made at the first start, and the same for everybody however many start at once."""
    found = conn.execute(_SELECT).one_or_none()
    if found is None:
        conn.execute(_INSERT.on(conn), {"id": new_deployment_id(), "install_nonce": secrets.token_hex(16)})
        found = conn.execute(_SELECT).one()
    return Deployment(*found)
