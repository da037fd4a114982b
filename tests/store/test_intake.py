"""Jobs that are accepted together: each with all that belongs to it, none hurt by what befalls another."""

from typing import Any

import pytest
from shunter_schemas.faults import DocumentError, Fault
from shunter_schemas.ids import new_id
from shunter_store.errors import KeyTaken
from shunter_store.job import events, idempotency, intake, job_lists, jobs
from shunter_store.job.intake import Answer, Outcome
from shunter_store.job.job_lists import JobFilter
from shunter_store.sql.database import Database
from shunter_store.tables import idempotency as idempotency_table
from shunter_store.tables import job_due, outbox
from shunter_store.tables import jobs as jobs_table
from sqlalchemy import Connection, event, func, select
from sqlalchemy.exc import DBAPIError, IntegrityError
from support.store_rows import new_job, offer, reread


def test_each_job_comes_with_its_due_row_event_hint_labels_and_answer(database: Database) -> None:
    offers = [offer(key=key, labels={"team": key}) for key in ("b", "a", "c")]

    outcomes = intake.accept(database, offers)

    assert outcomes == [Answer(201, {"ETag": '"1"'}, one.job.id) for one in offers]
    assert counts(database) == {"jobs": 3, "job_due": 3, "outbox": 3, "idempotency": 3}
    for one, key in zip(offers, ("b", "a", "c"), strict=True):
        assert [row.seq for row in database.read(lambda conn, one=one: events.page(conn, one.job.id))] == [1]  # type: ignore[misc]
        assert labelled(database, key) == [one.job.id]
        kept = database.read(lambda conn, key=key: idempotency.find(conn, "default", "/v1/jobs", key))  # type: ignore[misc]
        assert kept is not None
        assert (kept.status, kept.body, kept.headers) == (201, one.job.id, {"ETag": '"1"'})


def test_what_is_answered_is_what_is_stored(database: Database) -> None:
    odd = {
        "name": 'a "b" \\ ü\n',
        "labels": {"k": "'); --"},
        "spec": {"f": 1e-3, "n": None, "l": [1, {"ü": "\\u0041"}]},
    }

    answered = new_job(database, **odd)

    assert answered == reread(database, answered.id)
    assert database.read(lambda conn: jobs.document_text(conn, answered.id)) == '{"version": "1"}'


def test_one_that_its_check_refuses_hurts_no_other(database: Database) -> None:
    first, refused, last = offer(key="a"), offer(key="b", check=refuse), offer(key="c")

    outcomes = intake.accept(database, [first, refused, last])

    assert kinds(outcomes) == [Answer, DocumentError, Answer]
    assert counts(database) == {"jobs": 2, "job_due": 2, "outbox": 2, "idempotency": 2}
    assert database.read(lambda conn: jobs.get(conn, refused.job.id)) is None


def test_one_that_the_database_refuses_hurts_no_other(database: Database) -> None:
    known = new_job(database)
    offers = [offer(key="a"), offer(key="b", id=known.id), offer(key="c")]

    outcomes = intake.accept(database, offers)

    assert kinds(outcomes) == [Answer, IntegrityError, Answer]
    assert counts(database) == {"jobs": 3, "job_due": 3, "outbox": 3, "idempotency": 2}


def test_of_two_with_one_key_only_the_first_is_accepted(database: Database) -> None:
    first, second, other = offer(key="k"), offer(key="k"), offer(key="k", project="other")

    outcomes = intake.accept(database, [first, second, other])

    assert kinds(outcomes) == [Answer, KeyTaken, Answer]
    assert database.read(lambda conn: jobs.get(conn, second.job.id)) is None


def test_a_key_that_was_used_before_lets_no_second_job_in(database: Database) -> None:
    intake.accept(database, [offer(key="k")])

    outcomes = intake.accept(database, [offer(key="j"), offer(key="k")])

    assert kinds(outcomes) == [Answer, KeyTaken]
    assert counts(database) == {"jobs": 2, "job_due": 2, "outbox": 2, "idempotency": 2}


def test_without_a_key_no_answer_is_kept(database: Database) -> None:
    outcomes = intake.accept(database, [offer(), offer()])

    assert kinds(outcomes) == [Answer, Answer]
    assert counts(database)["idempotency"] == 0


def test_when_the_database_fails_all_are_told_and_nothing_is_tried_again(database: Database) -> None:
    tried: list[str] = []

    def fail(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "outbox" in statement:
            tried.append(statement)
            raise DBAPIError(statement, {}, Exception("the disk is full"))

    event.listen(database._writer, "before_cursor_execute", fail)
    with pytest.raises(DBAPIError, match="disk is full"):
        intake.accept(database, [offer(key="a"), offer(key="b")])
    event.remove(database._writer, "before_cursor_execute", fail)

    assert len(tried) == 1
    assert counts(database) == {"jobs": 0, "job_due": 0, "outbox": 0, "idempotency": 0}


def test_hundreds_are_accepted_at_once(database: Database) -> None:
    offers = [offer(key=new_id("key"), labels={"n": str(number)}) for number in range(700)]

    outcomes = intake.accept(database, offers)

    assert [outcome.body for outcome in outcomes if isinstance(outcome, Answer)] == [one.job.id for one in offers]
    assert labelled(database, "650", "n") == [offers[650].job.id]


def refuse(_: Connection) -> None:
    raise DocumentError([Fault("/source/id", "there is no such bundle")])


def kinds(outcomes: list[Outcome]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


def counts(database: Database) -> dict[str, int]:
    tables = (jobs_table, job_due, outbox, idempotency_table)
    columns = [select(func.count()).select_from(table).scalar_subquery().label(table.name) for table in tables]
    return dict(database.read(lambda conn: conn.execute(select(*columns)).one()._mapping))


def labelled(database: Database, value: str, key: str = "team") -> list[str]:
    where = JobFilter(labels=[(key, value)])
    return [line.id for line in database.read(lambda conn: job_lists.page(conn, project="default", where=where))]
