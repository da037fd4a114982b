"""What an exchange answers: what is desired, the lease, when to come again; and what it costs."""

from datetime import timedelta
from typing import Any

import pytest
from shunter_schemas.node_sync import Phase, SyncRequest
from shunter_schemas.states import NodeState
from shunter_store.installation.settings import Pace
from shunter_store.job import watch, wishes
from shunter_store.job.lifecycle import Trigger
from shunter_store.node import ledger, sync
from shunter_store.node.ledger import NodeRow
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import jobs as jobs_table
from sqlalchemy import Connection, delete, event
from support.exchanges import NOW, exchange, one_node, row, set_node, told, want
from support.node_messages import boot, points, sync_request
from support.store_rows import advance, intend, new_job, new_node


@pytest.mark.parametrize(("generation", "sent"), [(0, True), (1, False), (2, False)])
def test_the_assignment_is_sent_until_the_agent_shows_its_generation(
    database: Database, generation: int, sent: bool
) -> None:
    node = one_node(database)
    database.write(lambda conn: ledger.record_handle(conn, node.id, "i-1"))

    desired = exchange(database, node, boot(1), generation=generation).desired

    assert (desired.phase, desired.generation, desired.handle) == (Phase.RUN, 1, "i-1")
    assert (desired.assignment is not None) is sent
    assert not sent or (desired.assignment is not None and desired.assignment.ranks.world_size == 1)


def test_a_wish_for_a_checkpoint_is_handed_out_with_the_generation_that_runs(database: Database) -> None:
    node = one_node(database)
    advance(database, node.job_id, *RUNNING)
    before = exchange(database, node).desired

    database.write(lambda conn: wishes.request_checkpoint(conn, node.job_id, by="me"))
    after = exchange(database, node).desired

    assert [answer.checkpoint for answer in (before, after)] == [0, 1]


def test_a_node_that_holds_gets_no_assignment(database: Database) -> None:
    job = new_job(database)
    [node] = intend(database, job.id, new_node())

    desired = exchange(database, node, boot(1), phase="idle", generation=0).desired

    assert (desired.phase, desired.assignment) == (Phase.HOLD, None)


def test_a_node_of_a_deleted_job_or_of_a_row_that_is_closed_or_on_its_way_out_is_released(database: Database) -> None:
    node, other, leaving = one_node(database), one_node(database), one_node(database)
    database.write(lambda conn: conn.execute(delete(jobs_table).where(jobs_table.c.id == node.job_id)))
    set_node(database, other, state=NodeState.GONE)
    set_node(database, leaving, state=NodeState.RELEASING)

    answers = [exchange(database, one, ("note", 1, {})) for one in (node, other, leaving)]

    assert [answer.desired.phase for answer in answers] == [Phase.RELEASE] * 3
    assert [answer.acknowledged for answer in answers] == [1, 1, 1]
    assert len(told(database, other, "node.note")) == 1


def test_a_lease_is_committed_before_it_is_granted(database: Database) -> None:
    job = new_job(database)
    [node] = intend(database, job.id, new_node(lease_s=100.0))
    want(database, node, Phase.RUN, stop_at=NOW + timedelta(seconds=40))

    answer = exchange(database, node)

    assert (answer.lease.expires_in_s, answer.lease.stop_in_s) == (100.0, 40.0)
    assert row(database, node).lease_granted_until == NOW + timedelta(seconds=100)


def test_a_new_limit_reaches_the_node_in_its_next_exchange(database: Database) -> None:
    node = one_node(database)
    exchange(database, node)

    database.write(lambda conn: ledger.limit(conn, [node.id], NOW + timedelta(seconds=40)))
    limited = exchange(database, node)
    database.write(lambda conn: ledger.limit(conn, [node.id], None))
    lifted = exchange(database, node)

    assert (limited.lease.stop_in_s, lifted.lease.stop_in_s) == (40.0, None)


def test_a_node_without_a_lease_is_granted_none(database: Database) -> None:
    answer = exchange(database, one_node(database))

    assert (answer.lease.expires_in_s, answer.lease.stop_in_s) == (None, None)


PACE = Pace(changing_s=0.1, watched_s=1.5, quiet_s=9.0)
RUNNING = (Trigger.PLANNED, Trigger.NODES_READY, Trigger.TRAINER_UP)


@pytest.mark.parametrize(
    ("path", "phase", "watched", "age_s", "expected_s"),
    [
        (RUNNING, Phase.RUN, False, 0, 9.0),
        (RUNNING, Phase.RUN, True, 0, 1.5),
        (RUNNING[:2], Phase.RUN, False, 0, 0.1),
        (RUNNING[:2], Phase.RUN, False, 60, 1.5),
        (RUNNING[:1], Phase.HOLD, False, 0, 0.1),
        (RUNNING, Phase.STOP, False, 0, 0.1),
        (RUNNING, Phase.STOP, True, 60, 1.5),
        ((*RUNNING, Trigger.NODE_LOST), Phase.HOLD, False, 0, 0.1),
    ],
)
def test_a_node_comes_again_soon_while_things_change(
    database: Database, path: tuple[Trigger, ...], phase: Phase, watched: bool, age_s: float, expected_s: float
) -> None:
    job = new_job(database)
    [node] = intend(database, job.id, new_node())
    want(database, node, phase)
    set_node(database, node, desired_at=db_now() - age_s)
    advance(database, job.id, *path)
    if watched:
        database.write(lambda conn: watch.touch(conn, [job.id]))

    answer = exchange(database, node, pace=PACE)

    assert (answer.next_sync_s, answer.upload_logs) == (expected_s, watched)


@pytest.mark.parametrize(
    ("records", "most"),
    [
        ((), 2),
        ((("note", 1, {}),), 4),
        ((("note", 1, {}), ("note", 2, {}), ("note", 3, {})), 4),
        ((points(1, range(300)),), 5),
        ((("progress", 1, {"step": 1}), points(2, [1])), 6),
        ((("done", 1, {}),), 7),
    ],
    ids=["nothing new", "one event", "three events", "metrics", "metrics and progress", "an end"],
)
def test_an_exchange_costs_few_statements(database: Database, records: tuple[Any, ...], most: int) -> None:
    node = one_node(database)
    request = sync_request(node, *records)

    counted = database.write(lambda conn: statements(conn, node, request))

    assert counted <= most


def test_the_answer_is_the_message_of_the_protocol(database: Database) -> None:
    answer = exchange(database, one_node(database), boot(1)).answer()

    assert (answer.protocol, answer.acknowledged, answer.desired.phase) == (1, 1, Phase.RUN)


def statements(conn: Connection, node: NodeRow, request: SyncRequest) -> int:
    counted: list[str] = []
    event.listen(conn, "before_cursor_execute", lambda _c, _k, statement, *_: counted.append(statement))
    sync.ingest(conn, node, request, now=NOW)
    return len(counted)
