"""Money: recorded cost is the sum of the ledger's intervals by billed price, however it is grouped or split."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from shunter_schemas.states import NodeState
from shunter_store.accounts import money, readings
from shunter_store.accounts.money import MICRO, Costs, Span
from shunter_store.job import deletion, standings
from shunter_store.node import ledger
from shunter_store.node.ledger import NodeRow, ScannedNode
from shunter_store.sql.database import Database
from shunter_store.tables import charges, jobs, nodes
from sqlalchemy import insert, select, update
from support.store_rows import intend, new_job, new_node

DAY = datetime(2026, 11, 1, tzinfo=UTC)
EVERY_WAY = (("provider",), ("job",), ("project",), ("created_by",), ("day",), ("label.team",), ("provider", "day"))


def spent(
    database: Database, job_id: str, rate: float, since: datetime, until: datetime | None, **given: Any
) -> NodeRow:
    """A node that cost this much an hour, from its create call to the proof that it is gone (None: it is there)."""
    [row] = intend(database, job_id, new_node(billed_usd_per_hour=rate, **given))
    hours = 0.0 if until is None else (until - since).total_seconds() / 3600
    values: dict[str, Any] = {
        "state": NodeState.READY if until is None else NodeState.GONE,
        "handle": f"h-{row.id}",
        "intended_at": since,
        "created_at": since,
        "gone_at": until,
        "accrued_usd": rate * hours,
        "accrued_at": since if until is None else None,
    }
    database.write(lambda conn: conn.execute(update(nodes).where(nodes.c.id == row.id).values(**values)))
    if until is not None:
        interval = {"node_id": row.id, "since": since, "until": until, "usd_per_hour": rate}
        database.write(lambda conn: conn.execute(insert(charges).values(**interval)))
    return row


def costs(database: Database, *group_by: str, project: str | None = None, **span: datetime) -> Costs:
    return database.read(lambda conn: money.costs(conn, span=Span(**span), group_by=group_by, project=project))


def usd(found: Costs) -> dict[tuple[str | None, ...], float]:
    return {key: part.micro_usd / MICRO for key, part in found.groups.items()}


@pytest.fixture
def many(database: Database) -> list[str]:
    """Jobs whose nodes cost amounts that no sum of floats adds up."""
    chance = random.Random(7)
    made = []
    for number in range(5):
        labels = {"team": chance.choice(["nlp", "vision"])} if number % 3 else {}
        job = new_job(database, labels=labels, created_by=chance.choice(["ann", "bob"]))
        made.append(job.id)
        for _ in range(chance.randint(1, 3)):
            since = DAY + timedelta(seconds=chance.uniform(0, 200_000))
            until = since + timedelta(seconds=chance.uniform(1, 90_000))
            spent(database, job.id, chance.uniform(0.1, 98.3), since, until, instance=chance.choice(["east", "west"]))
    return made


@pytest.mark.parametrize("group_by", EVERY_WAY)
def test_the_groups_add_up_to_the_total_to_the_micro_dollar(
    database: Database, many: list[str], group_by: tuple[str, ...]
) -> None:
    found = costs(database, *group_by)

    assert sum(part.micro_usd for part in found.groups.values()) == found.total.micro_usd
    assert found.total.micro_usd == costs(database).total.micro_usd > 0


def test_a_job_costs_the_same_by_itself_as_in_the_costs_of_all(database: Database, many: list[str]) -> None:
    by_job = usd(costs(database, "job"))

    own = {job_id: database.read(lambda conn, job_id=job_id: ledger.ledger_cost(conn, job_id)) for job_id in many}  # type: ignore[misc]
    shown = database.read(lambda conn: standings.of_jobs(conn, many))

    assert {key[0]: value for key, value in by_job.items()} == pytest.approx(own, abs=1e-9)
    assert own == pytest.approx({job_id: standing.cost_usd for job_id, standing in shown.items()}, abs=1e-9)


def test_spans_that_meet_cost_together_what_they_cost_as_one(database: Database, many: list[str]) -> None:
    cuts = [DAY + timedelta(hours=hour) for hour in (0, 1, 7, 23.5, 40, 100)]

    parts = [costs(database, since=one, until=other).total.micro_usd for one, other in pairwise(cuts)]

    assert sum(parts) == costs(database, since=cuts[0], until=cuts[-1]).total.micro_usd
    assert sum(parts) == costs(database).total.micro_usd


def test_a_night_is_split_at_midnight_of_utc(database: Database) -> None:
    spent(database, new_job(database).id, 12.0, DAY - timedelta(hours=1), DAY + timedelta(hours=2))

    found = usd(costs(database, "day"))

    assert found == {("2026-10-31",): 12.0, ("2026-11-01",): 24.0}


def test_a_price_that_changes_counts_from_the_moment_of_its_scan(database: Database) -> None:
    job = new_job(database)
    start = datetime.now(UTC) - timedelta(hours=2)
    row = spent(database, job.id, 4.0, start, None)
    view = ScannedNode(handle=f"h-{row.id}", token=row.token, condition="running", billed_usd_per_hour=10.0)
    at = datetime.now(UTC)

    woken = database.write(
        lambda conn: ledger.observe_scan(
            conn, instance="local", account="acme", views=[view], complete=True, at=at, rows_before=[row.id]
        )
    )

    [interval] = database.read(lambda conn: conn.execute(select(charges)).all())
    assert (interval.node_id, interval.usd_per_hour) == (row.id, 4.0)
    assert usd(costs(database, "job"))[job.id,] == pytest.approx(8.0, abs=0.02)
    assert woken == [job.id], "the end of a budget moves with the price"


def test_the_interval_of_a_node_is_kept_when_it_is_proven_gone(database: Database) -> None:
    job = new_job(database)
    row = spent(database, job.id, 7.0, datetime.now(UTC) - timedelta(hours=1), None)
    database.write(lambda conn: conn.execute(update(nodes).where(nodes.c.id == row.id).values(absent_scans=2)))

    closed = database.write(
        lambda conn: ledger.close_absent(conn, row.id, {"kind": "absent", "account": "acme", "get": "gone"})
    )

    [interval] = database.read(lambda conn: conn.execute(select(charges)).all())
    assert closed
    assert (interval.until - interval.since).total_seconds() == pytest.approx(3600, abs=5)
    assert usd(costs(database, "job")) == {
        (job.id,): pytest.approx(database.read(lambda c: ledger.ledger_cost(c, job.id)))
    }


def test_a_node_that_was_closed_and_is_there_was_billed_all_along(database: Database) -> None:
    gone_at = datetime.now(UTC) - timedelta(hours=3)
    job = new_job(database)
    row = spent(database, job.id, 2.0, gone_at - timedelta(hours=1), gone_at)

    database.write(lambda conn: ledger.record_handle(conn, row.id, f"h-{row.id}"))

    assert usd(costs(database, "job"))[job.id,] == pytest.approx(8.0, abs=0.02)


def test_what_an_older_release_only_summed_up_lies_before_the_first_interval(database: Database) -> None:
    job = new_job(database)
    row = spent(database, job.id, 6.0, DAY, DAY + timedelta(hours=4))
    database.write(lambda conn: conn.execute(charges.delete().where(charges.c.node_id == row.id)))

    first_half = costs(database, until=DAY + timedelta(hours=2))

    assert first_half.total.micro_usd == 12 * MICRO
    assert costs(database).total.micro_usd == 24 * MICRO


def test_a_deleted_record_still_says_for_whom_its_nodes_were(database: Database) -> None:
    job = new_job(database, created_by="ann", labels={"team": "nlp"}, project="lab")
    spent(database, job.id, 3.0, DAY, DAY + timedelta(hours=1))
    database.write(lambda conn: conn.execute(update(jobs).where(jobs.c.id == job.id).values(state="failed")))

    database.write(lambda conn: deletion.delete(conn, job.id))

    assert usd(costs(database, "created_by", "label.team", "project")) == {("ann", "nlp", "lab"): 3.0}
    assert costs(database, project="lab").total.micro_usd == 3 * MICRO
    assert costs(database, project="default").total.micro_usd == 0


def test_what_nobody_has_seen_since_the_last_reading_is_unconfirmed(database: Database) -> None:
    now = datetime.now(UTC)
    spent(database, new_job(database).id, 6.0, now - timedelta(hours=2), None)
    read_at = now - timedelta(hours=1)
    database.write(
        lambda conn: readings.record(
            conn, "local", account="acme", bills=True, stale_after_s=60.0, at=read_at, strangers=[]
        )
    )

    found = costs(database).total

    assert found.micro_usd / MICRO == pytest.approx(12.0, abs=0.02)
    assert found.unconfirmed / MICRO == pytest.approx(6.0, abs=0.02)


def test_a_create_call_in_doubt_is_unconfirmed_as_a_whole(database: Database) -> None:
    row = spent(database, new_job(database).id, 6.0, datetime.now(UTC) - timedelta(hours=1), None)
    values = {"handle": None, "state": NodeState.UNKNOWN}
    database.write(lambda conn: conn.execute(update(nodes).where(nodes.c.id == row.id).values(**values)))

    found = costs(database).total

    assert found.unconfirmed == found.micro_usd > 0


def test_nodes_that_cost_nothing_are_in_no_group(database: Database) -> None:
    intend(database, new_job(database).id, new_node())

    found = costs(database, "provider")

    assert (found.groups, found.total.node_s) == ({}, 0.0)


def test_deleting_the_record_of_a_job_never_touches_its_ledger_rows(database: Database) -> None:
    job = new_job(database)
    row = spent(database, job.id, 3.0, DAY, DAY + timedelta(hours=1))
    database.write(lambda conn: conn.execute(update(jobs).where(jobs.c.id == job.id).values(state="failed")))
    before = database.read(lambda conn: ledger.get(conn, row.id))

    database.write(lambda conn: deletion.delete(conn, job.id))

    assert database.read(lambda conn: ledger.get(conn, row.id)) == before
