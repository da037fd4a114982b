"""Moments that lie ahead of a clock that was set back are moved with it; all others stay."""

from __future__ import annotations

from datetime import timedelta

import pytest
from shunter_store import due, ledger
from shunter_store.database import Database
from shunter_store.setbacks import set_back
from shunter_store.sqltypes import clock_of
from shunter_store.tables import job_due, nodes
from sqlalchemy import select, update
from support.store_rows import intend, new_job, new_node

BY = timedelta(hours=3)


def test_moments_ahead_of_the_clock_move_with_it_and_others_stay(database: Database) -> None:
    job = new_job(database)
    [node] = intend(database, job.id, new_node())
    now = database.read(clock_of)
    soon, long_ago = now + BY - timedelta(seconds=7), now - timedelta(hours=5)
    ahead = {"created_at": soon, "releasing_at": soon, "create_deadline_at": now + BY + timedelta(seconds=60)}
    told = {"desired_at": long_ago, "lease_granted_until": now + timedelta(hours=2)}
    database.write(lambda conn: conn.execute(update(nodes).values(**ahead, **told)))

    database.write(lambda conn: set_back(conn, by_s=BY.total_seconds()))

    row = database.read(lambda conn: ledger.get(conn, node.id))
    assert row is not None
    moved = (row.created_at, row.releasing_at, row.create_deadline_at)
    seconds = [(at - now).total_seconds() for at in moved if at is not None]
    assert seconds == [pytest.approx(-7, abs=0.01), pytest.approx(-7, abs=0.01), pytest.approx(60, abs=0.01)]
    kept = database.read(lambda conn: conn.execute(select(nodes.c.desired_at, nodes.c.lease_granted_until)).one())
    assert tuple(kept) == tuple(told.values())


def test_a_job_that_waits_for_a_moment_is_due_and_one_that_waits_to_be_woken_is_not(database: Database) -> None:
    waiting, parked = new_job(database), new_job(database)
    later = database.read(clock_of) + BY
    for job, at in ((waiting, later), (parked, None)):
        its = job_due.c.job_id == job.id
        database.write(lambda conn, its=its, at=at: conn.execute(update(job_due).where(its).values(next_at=at)))  # type: ignore[misc]

    woken = database.write(lambda conn: set_back(conn, by_s=BY.total_seconds()))

    assert woken == 1
    assert [claim.job_id for claim in database.write(lambda conn: due.claim(conn, owner="w", limit=5))] == [waiting.id]
