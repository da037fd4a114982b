"""Nodes that gather are told of each other, and the job looks when one of them has something new to tell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shunter_schemas.muster import Muster
from shunter_schemas.node_sync import Desired, Phase
from shunter_store.node import ledger, sync
from shunter_store.node.ledger import NodeRow
from shunter_store.sql.database import Database
from shunter_store.tables import gang_nodes
from sqlalchemy import select
from support.exchanges import is_due, park
from support.meetings import muster
from support.node_messages import boot, sync_request
from support.store_rows import intend, new_job, new_node, run_gang

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def gathering(database: Database, number: int = 3) -> list[NodeRow]:
    """Nodes that are there and were told to gather for generation 1."""
    job = new_job(database)
    nodes = intend(database, job.id, *(new_node(rank) for rank in range(number)))
    ids = [node.id for node in nodes]
    database.write(lambda conn: ledger.want(conn, ids, phase=Phase.MUSTER, generation=1))
    return nodes


def tell(database: Database, node: NodeRow, told: Muster | None = None, **changes: object) -> Desired:
    """An exchange of the node; what is desired of it."""
    request = sync_request(node, phase="idle", generation=0)
    status = request.status.model_copy(update={"muster": told, **changes})
    request = request.model_copy(update={"status": status})
    return database.write(lambda conn: sync.ingest(conn, node, request, now=NOW)).desired


def test_each_node_is_told_of_those_that_have_opened_their_ports(database: Database) -> None:
    first, second, third = gathering(database)

    alone = tell(database, first, muster(0))
    tell(database, second, muster(1))
    both = tell(database, third, muster(2))

    assert (alone.phase, alone.generation, alone.peers) == (Phase.MUSTER, 1, [])
    assert [(peer.node_rank, peer.ticket) for peer in both.peers] == [(0, "ticket-0"), (1, "ticket-1")]
    assert both.peers[0].addresses == ["10.0.0.1"]


def test_what_goes_through_is_measured_to_the_next_node_of_the_ring(database: Database) -> None:
    nodes = gathering(database)
    for node in nodes:
        tell(database, node, muster(node.rank))

    measured = {
        node.rank: [peer.node_rank for peer in tell(database, node, muster(node.rank)).peers if peer.measure]
        for node in nodes
    }

    assert measured == {0: [1], 1: [2], 2: [0]}


def test_a_node_of_another_generation_or_on_its_way_out_is_nobodys_peer(database: Database) -> None:
    first, second, third = gathering(database)
    tell(database, second, muster(1, generation=7))
    tell(database, third, muster(2))
    database.write(lambda conn: ledger.mark_releasing(conn, [third.id], "lost"))

    assert tell(database, first, muster(0)).peers == []


def test_the_job_looks_when_a_node_tells_something_new_of_the_gathering_and_only_then(database: Database) -> None:
    node, *_ = gathering(database)
    park(database, node)

    tell(database, node, muster(0))
    woken = is_due(database)
    park(database, node)
    tell(database, node, muster(0))

    assert (woken, is_due(database)) == (True, False)


def test_the_job_looks_when_a_node_cannot_write_down_what_happens(database: Database) -> None:
    node, *_ = run_gang(database, new_job(database).id)
    park(database, node)

    tell(database, node, stuck="[Errno 28] No space left on device")

    assert is_due(database)


def test_ends_are_put_down_by_the_services_clock(database: Database) -> None:
    node, *_ = run_gang(database, new_job(database).id)
    failed = ("failed", 2, {"rank": 0, "failure_class": "user", "reason": "user_error"})
    request = sync_request(node, boot(1), failed)
    ahead = NOW + timedelta(hours=1)
    records = [record.model_copy(update={"at": ahead.timestamp() - 2}) for record in request.records]
    status = request.status.model_copy(update={"clock": ahead.timestamp()})
    skewed = request.model_copy(update={"status": status, "records": records})

    database.write(lambda conn: sync.ingest(conn, node, skewed, now=NOW))

    ended = database.read(lambda conn: conn.execute(select(gang_nodes.c.ended_at)).scalar_one())
    assert abs((ended - NOW).total_seconds() + 2) < 0.01
