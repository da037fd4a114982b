"""The database's clock is set: moments that were written before move with it, so that every age stays what it was."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from shunter_store.accounts import money
from shunter_store.accounts.money import Span
from shunter_store.installation import notices
from shunter_store.installation.setbacks import follow_jump
from shunter_store.job import due
from shunter_store.node import ledger
from shunter_store.node.ledger import NodeRow
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import clock_of
from shunter_store.tables import charges, job_due, nodes
from sqlalchemy import insert, update
from support.store_rows import intend, new_job, new_node

BY = timedelta(hours=3)
WITHIN_S = 300.0
USD_PER_HOUR = 2.0


def a_node(database: Database, **moments: datetime) -> NodeRow:
    """An open row with these moments."""
    [node] = intend(database, new_job(database).id, new_node())
    its = nodes.c.id == node.id
    database.write(lambda conn: conn.execute(update(nodes).where(its).values(**moments)))
    return node


def jump(database: Database, by: timedelta) -> int | None:
    return database.write(lambda conn: follow_jump(conn, by_s=by.total_seconds(), within_s=WITHIN_S))


def ages_s(database: Database, node: NodeRow, *columns: str) -> list[float]:
    row = database.read(lambda conn: ledger.get(conn, node.id))
    now = database.read(clock_of)
    return [(now - getattr(row, name)).total_seconds() for name in columns]


def test_a_clock_that_is_set_back_takes_what_was_written_before_with_it(database: Database) -> None:
    now = database.read(clock_of)
    soon, long_ago = now + BY - timedelta(seconds=7), now + BY - timedelta(hours=5)
    ahead = {"created_at": soon, "releasing_at": soon, "create_deadline_at": now + BY + timedelta(seconds=60)}
    granted = now + timedelta(hours=2)
    node = a_node(database, **ahead, desired_at=long_ago, lease_granted_until=granted)

    jump(database, -BY)

    ages = ages_s(database, node, "created_at", "releasing_at", "create_deadline_at", "desired_at")
    assert ages == pytest.approx([7.0, 7.0, -60.0, 5 * 3600.0], abs=120)
    row = database.read(lambda conn: ledger.get(conn, node.id))
    assert row is not None
    assert row.lease_granted_until == granted


def test_what_was_written_in_the_seconds_around_the_jump_stays(database: Database) -> None:
    just_now = database.read(clock_of) - timedelta(seconds=1)
    node = a_node(database, last_sync_at=just_now)

    jump(database, -BY)

    assert ages_s(database, node, "last_sync_at") == pytest.approx([1.0], abs=120)


@pytest.mark.parametrize("age", [timedelta(minutes=10), timedelta(hours=5)], ids=["young", "older than the set-back"])
def test_a_node_costs_as_much_as_before_when_the_clock_is_set_back_and_right_again(
    database: Database, age: timedelta
) -> None:
    now = database.read(clock_of)
    half = age / 2
    begun = now + BY - age
    node = a_node(database, created_at=begun, intended_at=begun, accrued_at=begun + half)
    its = {"billed_usd_per_hour": USD_PER_HOUR, "accrued_usd": USD_PER_HOUR * half / timedelta(hours=1)}
    span = {"node_id": node.id, "since": begun, "until": begun + half, "usd_per_hour": USD_PER_HOUR}
    database.write(lambda conn: conn.execute(update(nodes).values(**its)))
    database.write(lambda conn: conn.execute(insert(charges).values(**span)))

    jump(database, -BY)
    behind = cost_usd(database, node), billed_usd(database, now - age, now)
    jump(database, BY)
    right = cost_usd(database, node)

    due_usd = USD_PER_HOUR * age / timedelta(hours=1)
    assert list(behind) == pytest.approx([due_usd, due_usd], abs=0.1)
    # This database's clock did not really go: the hours of the way back are missing from the age now.
    assert right == pytest.approx(max(its["accrued_usd"], due_usd - USD_PER_HOUR * 3), abs=0.1)


def test_a_clock_that_goes_ahead_for_no_known_reason_moves_nothing_and_is_told_of(database: Database) -> None:
    hour_ago = database.read(clock_of) - timedelta(hours=1)
    node = a_node(database, created_at=hour_ago)

    jump(database, BY)

    (told,) = database.read(lambda conn: notices.newest(conn))
    assert ages_s(database, node, "created_at") == pytest.approx([3600.0], abs=120)
    assert (told.type, told.data) == ("clock.set", {"by_s": 3 * 3600.0})


def test_a_clock_that_comes_back_from_ahead_moves_only_what_was_written_there(database: Database) -> None:
    now = database.read(clock_of)
    node = a_node(database, created_at=now - timedelta(hours=1), ready_at=now + BY - timedelta(seconds=60))
    jump(database, BY)

    jump(database, -BY)

    assert ages_s(database, node, "created_at", "ready_at") == pytest.approx([3600.0, 60.0], abs=120)


def test_a_jump_that_two_processes_see_is_followed_once(database: Database) -> None:
    hours_ago = database.read(clock_of) + BY - timedelta(hours=5)
    node = a_node(database, created_at=hours_ago)

    followed = [jump(database, -BY), jump(database, -BY + timedelta(seconds=1))]

    assert followed == [0, None]
    assert ages_s(database, node, "created_at") == pytest.approx([5 * 3600.0], abs=120)


def test_a_job_that_waits_for_a_moment_is_due_and_one_that_waits_to_be_woken_is_not(database: Database) -> None:
    waiting, parked = new_job(database), new_job(database)
    later = database.read(clock_of) + BY
    for job, at in ((waiting, later), (parked, None)):
        its = job_due.c.job_id == job.id
        database.write(lambda conn, its=its, at=at: conn.execute(update(job_due).where(its).values(next_at=at)))  # type: ignore[misc]

    woken = jump(database, -BY)

    assert woken == 1
    assert [claim.job_id for claim in database.write(lambda conn: due.claim(conn, owner="w", limit=5))] == [waiting.id]


def cost_usd(database: Database, node: NodeRow) -> float:
    return database.read(lambda conn: ledger.ledger_cost(conn, node.job_id))


def billed_usd(database: Database, since: datetime, until: datetime) -> float:
    """Of the time between, as reports have it."""
    span = Span(since - timedelta(minutes=1), until + timedelta(minutes=1))
    return database.read(lambda conn: money.costs(conn, span=span, group_by=())).total.micro_usd / 1_000_000
