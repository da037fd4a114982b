"""Accepting, reading, listing and cancelling jobs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shunter_schemas.states import Health, Reason, State
from shunter_store import due, events, jobs, outbox, steps
from shunter_store.database import Database
from shunter_store.errors import Conflict, NotFound
from shunter_store.lifecycle import Trigger
from support.store_rows import advance, claim_job, new_job, reread


def test_an_accepted_job_is_queued_due_and_told_of(database: Database) -> None:
    job = new_job(database, name="first", labels={"team": "nlp"}, spec={"a": [1, None, "é"]})

    assert (job.state, job.health, job.generation, job.revision, job.event_seq) == (State.QUEUED, Health.OK, 1, 1, 1)
    assert job.spec == {"a": [1, None, "é"]}
    assert abs(job.created_at - datetime.now(UTC)) < timedelta(seconds=5)
    assert reread(database, job.id) == job
    assert [event.type for event in database.read(lambda conn: events.page(conn, job.id))] == ["job.created"]
    assert [row.topic for row in database.read(lambda conn: outbox.take(conn, 10))] == [outbox.DUE]
    assert database.read(due.count_due) == 1


def test_the_document_is_kept_as_it_was_written(database: Database) -> None:
    job = new_job(database, spec_text='{ "version" : "1" }')

    text = database.read(lambda conn: jobs.document_text(conn, job.id))

    assert text == '{ "version" : "1" }'


def test_a_job_that_does_not_exist_is_none(database: Database) -> None:
    assert database.read(lambda conn: jobs.get(conn, "job_nothing")) is None
    assert database.read(lambda conn: jobs.document_text(conn, "job_nothing")) is None


def test_pages_show_every_job_once_newest_first(database: Database) -> None:
    made = [new_job(database) for _ in range(7)]

    seen: list[str] = []
    while page := page_before(database, seen[-1] if seen else None):
        seen += [job.id for job in page]

    newest_first = sorted(made, key=lambda job: (job.created_at, job.id), reverse=True)
    assert seen == [job.id for job in newest_first]


def test_a_page_is_not_moved_by_jobs_that_come_meanwhile(database: Database) -> None:
    made = [new_job(database) for _ in range(3)]
    old = sorted(made, key=lambda job: (job.created_at, job.id))
    first = database.read(lambda conn: jobs.page(conn, project="default", limit=1))
    new_job(database)

    second = database.read(
        lambda conn: jobs.page(conn, project="default", before=(first[0].created_at, first[0].id), limit=5)
    )

    assert [job.id for job in second] == [old[1].id, old[0].id]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"project": "other"}, ["d"]),
        ({"project": "default", "name": "b"}, ["b"]),
        ({"project": "default", "labels": {"team": "nlp"}}, ["a", "b"]),
        ({"project": "default", "labels": {"team": "nlp", 'odd "key"\\.$': "x"}}, ["b"]),
        ({"project": "default", "labels": {"team": "nl"}}, []),
        ({"project": "default", "states": [State.STOPPING]}, ["c"]),
        ({"project": "default", "states": [State.QUEUED, State.STOPPING]}, ["a", "b", "c"]),
        ({"project": "default", "states": [State.FAILED]}, []),
    ],
)
def test_pages_are_filtered(database: Database, filters: dict[str, Any], expected: list[str]) -> None:
    new_job(database, name="a", labels={"team": "nlp"})
    new_job(database, name="b", labels={"team": "nlp", 'odd "key"\\.$': "x"})
    stopped = new_job(database, name="c")
    new_job(database, name="d", project="other")
    stop(database, stopped.id, Reason.INVALID)

    page = database.read(lambda conn: jobs.page(conn, **filters))

    assert sorted(job.name for job in page) == expected


def test_lists_use_the_keyset_index(sqlite_url: str) -> None:
    database = Database.connect(sqlite_url)
    plan = database.read(
        lambda conn: conn.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT id FROM jobs WHERE project = 'p' AND (created_at, id) < (1.0, 'x') "
            "ORDER BY created_at DESC, id DESC LIMIT 5"
        ).all()
    )
    database.close()

    assert "ix_jobs_newest" in str(plan)
    assert "B-TREE" not in str(plan)


def test_a_cancel_is_recorded_once_and_wakes_the_job_at_the_highest_urgency(database: Database) -> None:
    job = new_job(database, priority=3)
    park(database, job.id)
    other = new_job(database, priority=1)

    first = database.write(lambda conn: jobs.request_cancel(conn, job.id, by="tester"))
    second = database.write(lambda conn: jobs.request_cancel(conn, job.id, by="tester"))

    assert first.cancel_requested_at is not None
    assert second == first
    types = [event.type for event in database.read(lambda conn: events.page(conn, job.id))]
    assert types == ["job.created", "job.cancel_requested"]
    claims = database.write(lambda conn: due.claim(conn, owner="w", limit=5))
    assert [claim.job_id for claim in claims] == [job.id, other.id]


def test_a_cancel_of_a_stopping_or_cancelled_job_changes_nothing(database: Database) -> None:
    job = new_job(database)
    stopping = stop(database, job.id, Reason.CANCELLED_BY_USER)
    while_stopping = database.write(lambda conn: jobs.request_cancel(conn, job.id, by="tester"))
    ended = advance(database, job.id, Trigger.NODES_GONE)

    after = database.write(lambda conn: jobs.request_cancel(conn, job.id, by="tester"))

    assert while_stopping == stopping
    assert after == ended
    assert after.state is State.CANCELLED


@pytest.mark.parametrize("reason", [Reason.DONE, Reason.USER_ERROR])
def test_a_cancel_of_a_job_whose_end_is_fixed_is_a_conflict(database: Database, reason: Reason) -> None:
    job = new_job(database)
    stop(database, job.id, reason)

    with pytest.raises(Conflict) as refused:
        database.write(lambda conn: jobs.request_cancel(conn, job.id, by="tester"))

    assert refused.value.slug == "job_ended"
    assert reread(database, job.id).cancel_requested_at is None


def test_a_cancel_of_no_job_is_not_found(database: Database) -> None:
    with pytest.raises(NotFound):
        database.write(lambda conn: jobs.request_cancel(conn, "job_nothing", by="tester"))


def page_before(database: Database, job_id: str | None) -> list[jobs.JobLine]:
    last = None if job_id is None else reread(database, job_id)
    before = None if last is None else (last.created_at, last.id)
    return database.read(lambda conn: jobs.page(conn, project="default", before=before, limit=3))


def stop(database: Database, job_id: str, reason: Reason) -> jobs.JobRow:
    claim = claim_job(database, job_id)
    return database.write(lambda conn: steps.apply(conn, claim, steps.Change(Trigger.STOP, reason)))


def park(database: Database, job_id: str) -> None:
    claim = claim_job(database, job_id)
    database.write(lambda conn: steps.apply(conn, claim, steps.Change()))
