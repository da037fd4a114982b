"""Rows of the node ledger as a test wants them."""

from __future__ import annotations

from typing import Any

from shunter_schemas.ids import new_node_token
from shunter_store.node import ledger
from shunter_store.node.ledger import NewNode, NodeRow
from shunter_store.sql.database import Database
from shunter_store.tables import nodes
from sqlalchemy import update
from support.store_rows import claim_job


def intended(database: Database, job_id: str, instance: str = "local", **changes: Any) -> NodeRow:
    """A row of the ledger; `changes` are written over it as they are."""
    claim = claim_job(database, job_id)
    token = new_node_token("abcdef")
    node = NewNode(0, token, token, instance, "me", {"instance_type": "cpu"})
    (row,) = database.write(lambda conn: ledger.intend(conn, claim, job_id=job_id, generation=1, nodes=[node]))
    if changes:
        database.write(lambda conn: conn.execute(update(nodes).where(nodes.c.id == row.id).values(**changes)))
    return reread_node(database, row.id)


def reread_node(database: Database, node_id: str) -> NodeRow:
    row = database.read(lambda conn: ledger.get(conn, node_id))
    assert row is not None
    return row
