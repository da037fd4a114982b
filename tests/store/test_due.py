"""Wake, claim and the fence, with two owners and leases that run out."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from shunter_schemas.states import Reason
from shunter_store.errors import StaleStep
from shunter_store.job import due, outbox, steps, wishes
from shunter_store.job.lifecycle import Trigger
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import job_due
from sqlalchemy import Connection, event, update
from support.store_rows import claim_one, new_job, reread


def test_a_claimed_job_is_nobody_elses_until_the_lease_runs_out(database: Database) -> None:
    job = new_job(database)
    first = claim_one(database, "a")
    meanwhile = database.write(lambda conn: due.claim(conn, owner="b"))

    expire(database, job.id)
    second = claim_one(database, "b")

    assert meanwhile == []
    assert (first.job_id, second.job_id) == (job.id, job.id)
    assert second.fence == first.fence + 1


def test_the_stale_owner_of_an_expired_lease_writes_nothing(database: Database) -> None:
    job = new_job(database)
    stale = claim_one(database, "a")
    expire(database, job.id)
    claim_one(database, "b")
    before = everything(database, job.id)

    change = steps.Change(Trigger.PLANNED, next_in_s=0, set={"message": "stale"}, events=[("stale", {})])
    with pytest.raises(StaleStep):
        database.write(lambda conn: steps.apply(conn, stale, change))

    assert everything(database, job.id) == before


def test_an_expired_lease_that_nobody_took_still_holds(database: Database) -> None:
    job = new_job(database)
    claim = claim_one(database)
    expire(database, job.id)

    applied = database.write(lambda conn: steps.apply(conn, claim, steps.Change(Trigger.PLANNED)))

    assert applied.revision == 2


def test_a_lease_beyond_any_that_a_worker_sets_is_ignored(database: Database) -> None:
    job = new_job(database)
    claim_one(database, "before the clock was set back", lease_s=3600)

    held = database.read(lambda conn: due.count_due(conn, lease_s=3600))
    free = database.read(due.count_due)

    assert (held, free) == (0, 1)
    assert claim_one(database).job_id == job.id


def test_a_wake_during_a_step_makes_the_job_due_at_once(database: Database) -> None:
    job = new_job(database)
    claim = claim_one(database)
    database.write(lambda conn: due.wake(conn, [job.id]))

    database.write(lambda conn: steps.apply(conn, claim, steps.Change(next_in_s=3600)))

    assert claim_one(database).fence == claim.fence + 1


def test_a_step_that_parks_the_job_leaves_it_alone_until_it_is_woken(database: Database) -> None:
    job = new_job(database)
    claim = claim_one(database)
    database.write(lambda conn: steps.apply(conn, claim, steps.Change()))
    parked = database.write(lambda conn: due.claim(conn, owner="w"))

    database.write(lambda conn: due.wake(conn, [job.id]))

    assert parked == []
    assert claim_one(database).job_id == job.id


def test_a_job_comes_again_when_its_step_said(database: Database) -> None:
    new_job(database)
    claim = claim_one(database)

    database.write(lambda conn: steps.apply(conn, claim, steps.Change(next_in_s=3600)))
    later = database.write(lambda conn: due.claim(conn, owner="w"))
    database.write(lambda conn: conn.execute(update(job_due).values(next_at=db_now() - 1)))

    assert later == []
    assert claim_one(database).job_id == claim.job_id


def test_stops_come_first_then_priority_then_the_longest_due(database: Database) -> None:
    low, high, normal = (new_job(database, priority=priority) for priority in (3, 1, 2))
    second_normal = new_job(database, priority=2)
    stopped = new_job(database, priority=3)
    for age_s, job in enumerate([stopped, second_normal, normal, high, low], 1):
        due_since(database, job.id, age_s)
    database.write(lambda conn: wishes.request_cancel(conn, stopped.id, by="tester"))

    claims = database.write(lambda conn: due.claim(conn, owner="w", limit=10))

    expected = [stopped, high, normal, second_normal, low]
    assert [claim.job_id for claim in claims] == [job.id for job in expected]


def test_a_claim_takes_no_more_than_it_asked_for(database: Database) -> None:
    for _ in range(5):
        new_job(database)

    claims = database.write(lambda conn: due.claim(conn, owner="w", limit=2))

    assert len(claims) == 2
    assert database.read(due.count_due) == 3


def test_a_wake_leaves_one_hint_and_none_for_a_job_that_ended(database: Database) -> None:
    job = new_job(database)
    end(database, job.id)
    hints = database.read(lambda conn: outbox.take(conn, 100))

    database.write(lambda conn: due.wake(conn, [job.id, "job_nothing"]))

    assert database.read(lambda conn: outbox.take(conn, 100)) == hints
    assert database.read(due.count_due) == 0


def test_a_step_of_a_job_that_ended_is_stale(database: Database) -> None:
    job = new_job(database)
    claim = end(database, job.id)

    with pytest.raises(StaleStep):
        database.write(lambda conn: steps.apply(conn, claim, steps.Change(events=[("late", {})])))


def test_eight_threads_claim_every_job_once(database_url: str) -> None:
    database = Database.connect(database_url, readers=8)
    made = {new_job(database).id for _ in range(40)}
    start = threading.Barrier(8)

    def work(owner: int) -> list[str]:
        start.wait()
        mine: list[str] = []
        while claims := database.write(lambda conn: due.claim(conn, owner=str(owner), limit=3)):
            mine += [claim.job_id for claim in claims]
        return mine

    with ThreadPoolExecutor(8) as pool:
        claimed = [job_id for mine in pool.map(work, range(8)) for job_id in mine]
    # A claim passes over rows that another one locks at that moment, so all threads may end before the last job.
    claimed += [claim.job_id for claim in database.write(lambda conn: due.claim(conn, owner="last", limit=40))]
    database.close()

    assert sorted(claimed) == sorted(made)


def test_a_claim_jumps_to_what_is_due_however_many_jobs_wait(sqlite_url: str) -> None:
    with closing(Database.connect(sqlite_url)) as database:
        plan = database.write(plan_of_claim)

    assert "ix_job_due_next (urgency=? AND next_at<?)" in plan
    assert "B-TREE" not in plan


def test_require_proves_a_claim_only_while_it_holds(database: Database) -> None:
    job = new_job(database)
    claim = claim_one(database)
    database.write(lambda conn: due.require(conn, claim))
    expire(database, job.id)
    claim_one(database)

    with pytest.raises(StaleStep):
        database.write(lambda conn: due.require(conn, claim))


def test_a_job_that_is_due_at_once_is_claimed_again_in_the_transaction_that_let_it_go(database: Database) -> None:
    job = new_job(database)
    first = claim_one(database, "a")

    def step(conn: Connection) -> due.Claim | None:
        steps.apply(conn, first, steps.Change(Trigger.PLANNED, next_in_s=0.0, hints=False))
        return due.claim_again(conn, job.id, owner="a", lease_s=30.0)

    before = hints(database)
    again = database.write(step)

    assert again is not None
    assert (again.job_id, again.fence) == (job.id, first.fence + 1)
    assert database.write(lambda conn: due.claim(conn, owner="b")) == []
    assert hints(database) == before
    with pytest.raises(StaleStep):
        database.write(lambda conn: steps.apply(conn, first, steps.Change()))


def test_a_job_that_waits_ended_or_is_held_is_not_claimed_again(database: Database) -> None:
    waits, held = new_job(database), new_job(database)
    claims = database.write(lambda conn: due.claim(conn, owner="a", limit=2))
    its = next(claim for claim in claims if claim.job_id == waits.id)
    database.write(lambda conn: steps.apply(conn, its, steps.Change(next_in_s=60.0)))

    found = [
        database.write(lambda conn, id_=id_: due.claim_again(conn, id_, owner="b", lease_s=30.0))  # type: ignore[misc]
        for id_ in (waits.id, held.id, "job_of_nobody")
    ]

    assert found == [None, None, None]


def hints(database: Database) -> int:
    return len(database.read(lambda conn: outbox.take(conn, 100)))


def plan_of_claim(conn: Connection) -> str:
    ran: list[tuple[str, Any]] = []
    event.listen(conn, "before_cursor_execute", lambda _c, _k, sql, parameters, *_: ran.append((sql, parameters)))
    due.claim(conn, owner="w")
    sql, parameters = ran[0]
    return str(conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters).all())


def expire(database: Database, job_id: str) -> None:
    _set_due(database, job_id, lease_until=db_now() - 1)


def due_since(database: Database, job_id: str, age_s: float) -> None:
    _set_due(database, job_id, next_at=db_now() - age_s)


def _set_due(database: Database, job_id: str, **values: object) -> None:
    database.write(lambda conn: conn.execute(update(job_due).where(job_due.c.job_id == job_id).values(**values)))


def end(database: Database, job_id: str) -> due.Claim:
    claim = claim_one(database)
    database.write(lambda conn: steps.apply(conn, claim, steps.Change(Trigger.STOP, Reason.INVALID, next_in_s=0)))
    claim = claim_one(database)
    database.write(lambda conn: steps.apply(conn, claim, steps.Change(Trigger.NODES_GONE)))
    assert reread(database, job_id).released_at is not None
    return claim


def everything(database: Database, job_id: str) -> object:
    rows = database.read(lambda conn: conn.execute(job_due.select()).all())
    return reread(database, job_id), rows
