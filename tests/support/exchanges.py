"""Exchanges of one node with the store, and what came of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from shunter_schemas.node_sync import Phase
from shunter_store.installation.settings import Pace
from shunter_store.job import due, events, steps
from shunter_store.node import gang, ledger, sync
from shunter_store.node.ledger import NodeRow
from shunter_store.node.sync import Ingested
from shunter_store.sql.database import Database
from shunter_store.tables import jobs, nodes
from sqlalchemy import update
from support.node_messages import sync_request
from support.store_rows import claim_job, new_job, run_gang

NOW = datetime(2027, 1, 1, tzinfo=UTC)


def one_node(database: Database) -> NodeRow:
    """A node whose job was told to run on it alone."""
    [node] = run_gang(database, new_job(database).id, 1)
    return node


def exchange(database: Database, node: NodeRow, *records: Any, pace: Pace | None = None, **given: Any) -> Ingested:
    """One exchange of the node."""
    request = sync_request(node, *records, **given)
    return database.write(lambda conn: sync.ingest(conn, node, request, now=NOW, pace=pace or Pace()))


def park(database: Database, node: NodeRow) -> None:
    """A step that leaves the job alone until it is woken."""
    claim = claim_job(database, node.job_id)
    database.write(lambda conn: steps.apply(conn, claim, steps.Change()))


def is_due(database: Database) -> bool:
    """Whether any job is due."""
    return database.read(due.count_due) > 0


def row(database: Database, node: NodeRow) -> NodeRow:
    """The node's row now."""
    found = database.read(lambda conn: ledger.get(conn, node.id))
    assert found is not None
    return found


def facts(database: Database, node: NodeRow, generation: int = 1) -> gang.GangFacts:
    """What is known of a generation."""
    return database.read(lambda conn: gang.gang_facts(conn, node.job_id, generation))


def told(database: Database, node: NodeRow, of_type: str = "") -> list[dict[str, Any]]:
    """Data of the job's events after `job.created`, of one type or all."""
    page = database.read(lambda conn: events.page(conn, node.job_id, after=1, limit=1000))
    return [one.data for one in page if of_type in ("", one.type)]


def want(database: Database, node: NodeRow, phase: Phase, **given: Any) -> None:
    """Say what the node shall do."""
    database.write(lambda conn: ledger.want(conn, [node.id], phase=phase, generation=1, **given))


def set_node(database: Database, node: NodeRow, **values: Any) -> None:
    """Write columns of the node's row past the store."""
    its = nodes.c.id == node.id
    database.write(lambda conn: conn.execute(update(nodes).where(its).values(**values)))


def set_job(database: Database, node: NodeRow, **values: Any) -> None:
    """Write columns of the job's row past the store."""
    its = jobs.c.id == node.job_id
    database.write(lambda conn: conn.execute(update(jobs).where(its).values(**values)))
