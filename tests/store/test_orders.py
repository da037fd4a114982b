"""What was decided about nodes lately, with the moment that their exchanges tell."""

from __future__ import annotations

from shunter_schemas.node_sync import Phase
from shunter_store.installation.settings import Pace
from shunter_store.node import beats, ledger, orders
from shunter_store.node.beats import Exchange
from shunter_store.node.ledger import NodeRow
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import clock_of, time_of
from support.exchanges import NOW, exchange, one_node, park, set_node, want
from support.node_messages import boot, sync_request


def lately(database: Database, within_s: float = 60.0) -> dict[str, float]:
    return dict(database.read(lambda conn: orders.changed_lately(conn, within_s)))


def long_ago(database: Database, node: NodeRow) -> None:
    now = database.read(clock_of).timestamp()
    set_node(database, node, desired_at=time_of(now - 3600))


def test_only_nodes_of_which_something_was_decided_lately_are_told(database: Database) -> None:
    calm, stopped = one_node(database), one_node(database)
    for node in (calm, stopped):
        long_ago(database, node)

    want(database, stopped, Phase.STOP)

    assert list(lately(database)) == [stopped.token]


def test_saying_the_same_once_more_decides_nothing(database: Database) -> None:
    node = one_node(database)
    want(database, node, Phase.STOP)
    long_ago(database, node)

    want(database, node, Phase.STOP)

    assert lately(database) == {}


def test_an_exchange_tells_the_moment_by_which_a_change_is_found(database: Database) -> None:
    node = one_node(database)
    alone = exchange(database, node, boot(1), ("rank_up", 2, {"rank": 0, "pid": 7})).desired.since
    park(database, node)
    asked = Exchange(f"token:{node.token}", sync_request(node))
    [beat] = database.write(lambda conn: beats.take_beats(conn, [asked], now=NOW, pace=Pace()))
    at = lately(database)[node.token]

    want(database, node, Phase.STOP)
    after = lately(database)[node.token]

    assert beat is not None
    assert alone is not None
    assert beat.desired.since == alone
    assert orders.is_same(alone, at)
    assert not orders.is_same(alone, after)


def test_a_node_that_is_let_go_has_nothing_to_listen_for(database: Database) -> None:
    node = one_node(database)
    database.write(lambda conn: ledger.mark_releasing(conn, [node.id], "over"))

    assert exchange(database, node).desired.since is None
