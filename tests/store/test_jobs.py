"""Accepting and reading jobs."""

from datetime import UTC, datetime, timedelta

from shunter_schemas.states import Health, State
from shunter_store.job import due, events, jobs, outbox
from shunter_store.sql.database import Database
from support.store_rows import new_job, reread


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
