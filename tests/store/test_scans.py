"""What a provider's listing does to the ledger."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shunter_schemas.states import NodeState
from shunter_store.job import due, steps
from shunter_store.node import ledger, scans
from shunter_store.node.ledger import NodeRow, ScannedNode
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import nodes as nodes_table
from sqlalchemy import update
from support.store_rows import claim_job, intend, new_job, new_node

DEADLINE = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEFORE, AFTER = DEADLINE - timedelta(seconds=1), DEADLINE + timedelta(seconds=1)


def test_a_node_that_is_listed_shows_its_condition_and_wakes_its_job(database: Database) -> None:
    node = booting_node(database)
    idle(database, node)

    changed = scan(database, node, "running", addresses={"public": "10.0.0.1"})
    again = scan(database, node, "running", addresses={"public": "10.0.0.1"})

    seen = row(database, node)
    assert (seen.condition, seen.addresses, seen.scanned_at) == ("running", {"public": "10.0.0.1"}, AFTER)
    assert (changed, again) == ([node.job_id], [])
    assert database.read(due.count_due) == 1


def test_what_a_look_at_one_node_shows_is_kept_until_a_listing_shows_the_node(database: Database) -> None:
    node = booting_node(database)
    look(database, node, "unknown")
    before = row(database, node)

    scan(database, node, "running", addresses={"machine": "host-2"})
    look(database, node, "unknown")

    after = row(database, node)
    assert (before.condition, before.addresses) == ("unknown", {"machine": "host-1"})
    assert (after.condition, after.addresses) == ("running", {"machine": "host-2"})


def test_why_the_provider_says_that_a_node_failed_is_kept_and_goes_when_it_says_otherwise(database: Database) -> None:
    node = booting_node(database)

    changed = scan(database, node, "failed", fault="invalid", scope="offer")
    failed = row(database, node)
    scan(database, node, "running")

    assert (failed.condition, failed.condition_fault, failed.condition_scope) == ("failed", "invalid", "offer")
    assert changed == [node.job_id]
    assert (row(database, node).condition_fault, row(database, node).condition_scope) == (None, None)


def test_a_node_in_the_provider_s_queue_costs_nothing_until_it_has_left_it(database: Database) -> None:
    node = booting_node(database, billed_usd_per_hour=2.0, offer={"price": {"gpu_usd_per_hour": 2.0}})
    scan(database, node, "queued", rate=2.0)
    queued = row(database, node)
    set_node(database, node, accrued_at=db_now() - 3600)
    again = scan(database, node, "queued", rate=2.0)
    waited_usd = cost_usd(database, node)

    scan(database, node, "pending")

    boots = row(database, node)
    assert (queued.billed_usd_per_hour, queued.queued_until, again) == (0.0, None, [])
    assert waited_usd == pytest.approx(0.0, abs=0.01)
    assert (boots.billed_usd_per_hour, boots.queued_until) == (2.0, AFTER)


def test_two_complete_listings_without_the_node_are_proof(database: Database) -> None:
    node = booting_node(database)
    scan(database, node, "running")

    results = [(scan(database, node, None), row(database, node).absent_scans) for _ in range(3)]

    assert results == [([], 1), ([node.job_id], 2), ([], 2)]
    assert row(database, node).condition == "gone"


def test_a_listing_that_shows_the_node_again_begins_the_count_anew(database: Database) -> None:
    node = booting_node(database)
    scan(database, node, "running")
    scan(database, node, None)

    scan(database, node, "running")

    assert row(database, node).absent_scans == 0


def test_a_node_listed_as_gone_counts_as_not_listed(database: Database) -> None:
    node = booting_node(database)

    scan(database, node, "gone")

    assert row(database, node).absent_scans == 1


@pytest.mark.parametrize(
    "circumstances",
    [{"complete": False}, {"account": "other"}, {"rows_before": set()}],
    ids=["incomplete", "another account", "younger than the listing"],
)
def test_a_listing_that_could_not_have_shown_the_node_proves_nothing(
    database: Database, circumstances: dict[str, Any]
) -> None:
    node = booting_node(database)

    for _ in range(3):
        scan(database, node, None, **circumstances)

    assert row(database, node).absent_scans == 0


def test_a_create_in_doubt_counts_as_absent_only_after_its_deadline(database: Database) -> None:
    node = creating_node(database)
    scan(database, node, None, at=BEFORE)
    before = row(database, node).absent_scans

    scan(database, node, None, at=AFTER)

    assert (before, row(database, node).absent_scans) == (0, 1)


def test_a_node_that_was_never_begun_is_not_missed(database: Database) -> None:
    [node] = intend(database, new_job(database).id, new_node())

    scan(database, node, None)

    assert row(database, node).absent_scans == 0


def test_a_create_in_doubt_is_found_by_its_token(database: Database) -> None:
    node = creating_node(database)
    database.write(lambda conn: ledger.mark_unknown(conn, node.id, "timed out"))

    changed = scan(database, node, "pending", handle="i-found")

    found = row(database, node)
    assert (found.state, found.handle, found.condition) == (NodeState.BOOTING, "i-found", "pending")
    assert found.created_at is not None
    assert changed == [node.job_id]


def test_a_twin_with_the_same_token_does_not_stand_for_the_node(database: Database) -> None:
    node = booting_node(database)

    for _ in range(2):
        scan(database, node, "running", handle="i-twin")

    assert row(database, node).absent_scans == 2


def test_a_new_rate_accrues_what_was_owed_at_the_old_one(database: Database) -> None:
    node = booting_node(database, billed_usd_per_hour=2.0)
    set_node(database, node, accrued_at=db_now() - 3600)

    scan(database, node, "running", rate=10.0)
    set_node(database, node, accrued_at=db_now() - 360)

    cost = cost_usd(database, node)
    assert row(database, node).billed_usd_per_hour == 10.0
    assert cost == pytest.approx(2.0 + 1.0, abs=0.01)


def test_a_scan_leaves_other_instances_and_closed_rows_alone(database: Database) -> None:
    node = booting_node(database)
    other = booting_node(database, instance="other")
    set_node(database, node, state=NodeState.GONE)

    scan(database, node, None)

    assert row(database, node).absent_scans == 0
    assert row(database, other).absent_scans == 0


def creating_node(database: Database, **given: Any) -> NodeRow:
    job = new_job(database)
    [node] = intend(database, job.id, new_node(**given))
    claim = claim_job(database, job.id)
    database.write(lambda conn: ledger.begin_create(conn, claim, node.id, DEADLINE))
    return node


def booting_node(database: Database, **given: Any) -> NodeRow:
    node = creating_node(database, **given)
    database.write(lambda conn: ledger.record_handle(conn, node.id, "i-1"))
    return row(database, node)


def scan(
    database: Database,
    node: NodeRow,
    condition: str | None,
    *,
    handle: str = "i-1",
    rate: float | None = None,
    addresses: dict[str, str] | None = None,
    fault: str | None = None,
    scope: str | None = None,
    **circumstances: Any,
) -> list[str]:
    view = ScannedNode(handle, node.token, condition or "", "", addresses, rate, fault, scope)
    given = {
        "instance": "local",
        "account": "acme",
        "views": [] if condition is None else [view],
        "complete": True,
        "at": AFTER,
        "rows_before": {node.id},
    }
    return database.write(lambda conn: ledger.observe_scan(conn, **{**given, **circumstances}))


def cost_usd(database: Database, node: NodeRow) -> float:
    return database.read(lambda conn: ledger.ledger_cost(conn, node.job_id))


def idle(database: Database, node: NodeRow) -> None:
    claim = claim_job(database, node.job_id)
    database.write(lambda conn: steps.apply(conn, claim, steps.Change()))


def look(database: Database, node: NodeRow, condition: str) -> None:
    at = {"machine": "host-1"}
    database.write(lambda conn: scans.see_first(conn, node.id, condition=condition, reason="", addresses=at))


def row(database: Database, node: NodeRow) -> NodeRow:
    found = database.read(lambda conn: ledger.get(conn, node.id))
    assert found is not None
    return found


def set_node(database: Database, node: NodeRow, **values: Any) -> None:
    its = nodes_table.c.id == node.id
    database.write(lambda conn: conn.execute(update(nodes_table).where(its).values(**values)))
