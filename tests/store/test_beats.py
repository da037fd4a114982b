"""Many exchanges in one transaction: the same as one by one, and only those that move nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import Health
from shunter_store.installation.settings import Pace
from shunter_store.job import events
from shunter_store.node import beats
from shunter_store.node.beats import Exchange
from shunter_store.node.ledger import NodeRow
from shunter_store.node.sync import Ingested
from shunter_store.report import metrics
from shunter_store.sql.database import Database
from support.exchanges import NOW, exchange, is_due, one_node, park, row, set_job, set_node, want
from support.node_messages import boot, log, points, record, sync_request
from support.store_rows import new_job, run_gang, tell_to_run

PROGRESS = ("progress", 4, {"step": 2, "values": {"loss": 0.5}})


def running_node(database: Database) -> NodeRow:
    """A node that runs what it was told to, and has said so."""
    node = one_node(database)
    exchange(database, node, boot(1), ("rank_up", 2, {"rank": 0, "pid": 7}))
    park(database, node)
    return node


def beat(node: NodeRow, *records: Any, **given: Any) -> Exchange:
    return Exchange(f"token:{node.token}", sync_request(node, *records, **given))


def take(database: Database, *asked: Exchange) -> list[Ingested | None]:
    return database.write(lambda conn: beats.take_beats(conn, asked, now=NOW, pace=Pace()))


def test_beats_of_many_nodes_are_kept_in_one_transaction(database: Database) -> None:
    nodes = [running_node(database) for _ in range(3)]
    before = database.transactions

    answers = take(database, *(beat(node, points(3, [1, 2]), PROGRESS) for node in nodes))

    assert database.transactions == before + 1
    assert [answer and answer.acknowledged for answer in answers] == [4, 4, 4]
    assert [row(database, node).acknowledged for node in nodes] == [4, 4, 4]
    for node in nodes:
        [loss] = database.read(lambda conn, job_id=node.job_id: metrics.series(conn, job_id))  # type: ignore[misc]
        assert loss.steps == [1, 2]
        progress = database.read(lambda conn, job_id=node.job_id: metrics.progress(conn, [job_id]))  # type: ignore[misc]
        assert progress[node.job_id].step == 2


def test_a_beat_is_answered_as_an_exchange_of_its_own_is(database: Database) -> None:
    node = running_node(database)
    set_node(database, node, lease_s=100.0, stop_at=NOW + timedelta(seconds=30))

    [answer] = take(database, beat(node))
    alone = exchange(database, node)

    assert answer is not None
    assert (answer.desired, answer.lease, answer.upload_logs) == (alone.desired, alone.lease, alone.upload_logs)
    assert 0.9 * alone.next_sync_s <= answer.next_sync_s <= alone.next_sync_s
    assert row(database, node).lease_granted_until == NOW + timedelta(seconds=100)


def test_a_beat_costs_no_step_and_no_message(database: Database) -> None:
    node = running_node(database)

    take(database, beat(node, points(3, [1]), PROGRESS))

    assert not is_due(database)


@pytest.mark.parametrize("database_url", [pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True)
def test_on_postgresql_the_statements_of_a_batch_do_not_grow_with_it(database: Database) -> None:
    nodes = [running_node(database) for _ in range(12)]

    counts = []
    for some in (nodes[:2], nodes[2:]):
        before = database.statements
        take(database, *(beat(node, points(3, [1, 2]), PROGRESS) for node in some))
        counts.append(database.statements - before)

    assert counts[0] == counts[1] <= 6


def test_the_same_beat_again_changes_nothing(database: Database) -> None:
    node = running_node(database)
    once = beat(node, points(3, [1]))

    take(database, once)
    [again] = take(database, once)

    assert again is not None
    assert again.acknowledged == 3
    assert database.read(lambda conn: metrics.newest_number(conn, node.job_id)) == 1


def test_two_exchanges_of_one_node_in_a_batch_are_not_both_taken(database: Database) -> None:
    node = running_node(database)

    first, second = take(database, beat(node, points(3, [1])), beat(node, points(3, [1])))

    assert first is not None
    assert second is None


def test_points_have_the_numbers_that_they_would_have_one_by_one(database: Database) -> None:
    node = running_node(database)
    take(database, beat(node, points(3, [1, 2])))

    take(database, beat(node, points(4, [2, 300])))

    arrivals = database.read(lambda conn: metrics.arrivals(conn, node.job_id, 0))
    assert [(one.number, one.step) for one in arrivals] == [(1, 1), (2, 2), (4, 300)]


@pytest.mark.parametrize(
    "records",
    [
        [("done", 3, {"exit_code": 0})],
        [points(3, [1]), ("drained", 4, {})],
        [points(4, [1])],
        [("metrics", 3, {"points": "none"})],
        [record("unheard_of", 3)],
    ],
    ids=["an end", "an end behind points", "a gap", "no points", "an unknown type"],
)
def test_what_is_no_beat_is_left_alone(database: Database, records: list[Any]) -> None:
    node = running_node(database)
    before = row(database, node)

    assert take(database, beat(node, *records)) == [None]

    assert row(database, node) == before
    assert database.read(lambda conn: events.page(conn, node.job_id))[-1].type == "node.rank_up"


def test_a_log_chunk_is_no_beat(database: Database) -> None:
    node = running_node(database)

    assert take(database, beat(node, log(3, node))) == [None]


def test_another_journal_or_another_machine_is_no_beat(database: Database) -> None:
    node = running_node(database)
    set_node(database, node, handle="mine")

    assert take(database, beat(node, journal="another"), beat(node, handle="a-twin")) == [None, None]


def test_a_node_that_has_not_heard_its_orders_is_no_beat(database: Database) -> None:
    node = running_node(database)
    tell_to_run(database, [node], 2)

    assert take(database, beat(node)) == [None]


def test_a_node_that_is_stopped_or_was_silent_is_no_beat(database: Database) -> None:
    stopped, silent = running_node(database), running_node(database)
    want(database, stopped, Phase.STOP)
    set_job(database, silent, health=Health.UNREACHABLE)

    assert take(database, beat(stopped), beat(silent)) == [None, None]


def test_a_token_that_nobody_has_and_one_of_another_node_are_no_beats(database: Database) -> None:
    one, other = running_node(database), running_node(database)

    stolen = Exchange(f"token:{one.token}", sync_request(other))

    assert take(database, Exchange("token:\ud800", sync_request(one)), stolen) == [None, None]


def test_of_a_gang_one_node_a_batch_brings_points(database: Database) -> None:
    nodes = run_gang(database, new_job(database).id, 2)
    for node in nodes:
        exchange(database, node, boot(1), ("rank_up", 2, {"rank": node.rank, "pid": 7}))

    answers = take(database, *(beat(node, points(3, [node.rank])) for node in nodes))

    assert [answer is None for answer in answers] == [False, True]
