"""Answers under an Idempotency-Key: stored with what they answer for, replayed for the same body only."""

import pytest
from shunter_schemas.ids import new_id
from shunter_store.errors import IdempotencyMismatch, KeyTaken
from shunter_store.job import idempotency, jobs
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import idempotency as idempotency_table
from sqlalchemy import Connection, update
from support.store_rows import reread


def test_an_answer_is_replayed_for_the_same_body(database: Database) -> None:
    database.write(lambda conn: store(conn, "k"))

    stored = database.read(lambda conn: idempotency.replay(conn, "default", "/v1/jobs", "k", "hash"))

    assert stored is not None
    assert (stored.status, stored.headers, stored.body) == (201, {"ETag": '"1"'}, "{}")


def test_another_body_under_the_key_is_a_mismatch(database: Database) -> None:
    database.write(lambda conn: store(conn, "k"))

    with pytest.raises(IdempotencyMismatch):
        database.read(lambda conn: idempotency.replay(conn, "default", "/v1/jobs", "k", "other"))


@pytest.mark.parametrize(
    ("project", "path", "key"), [("other", "/v1/jobs", "k"), ("default", "/v1/x", "k"), ("default", "/v1/jobs", "K")]
)
def test_a_key_is_known_only_in_its_project_and_path(database: Database, project: str, path: str, key: str) -> None:
    database.write(lambda conn: store(conn, "k"))

    assert database.read(lambda conn: idempotency.find(conn, project, path, key)) is None


def test_of_two_requests_with_one_key_the_second_leaves_no_job(database: Database) -> None:
    first, second = new_id("job"), new_id("job")
    database.write(lambda conn: submit(conn, first))

    with pytest.raises(KeyTaken):
        database.write(lambda conn: submit(conn, second))

    assert reread(database, first).id == first
    assert database.read(lambda conn: jobs.get(conn, second)) is None


def test_answers_are_kept_for_a_day_at_least(database: Database) -> None:
    for key, age_s in [("old", 90_000), ("young", 80_000)]:
        database.write(lambda conn, key=key: store(conn, key))  # type: ignore[misc]
        its = idempotency_table.c.key == key
        aged = update(idempotency_table).where(its).values(created_at=db_now() - age_s)
        database.write(lambda conn, aged=aged: conn.execute(aged))  # type: ignore[misc]

    forgotten = database.write(lambda conn: idempotency.expire(conn, 10, older_than_s=1))

    assert forgotten == 1
    assert database.read(lambda conn: idempotency.find(conn, "default", "/v1/jobs", "young")) is not None


def submit(conn: Connection, job_id: str) -> None:
    jobs.insert(
        conn,
        job_id=job_id,
        project="default",
        created_by="tester",
        spec={},
        spec_text="{}",
        name="",
        labels={},
        priority=2,
    )
    store(conn, "k")


def store(conn: Connection, key: str) -> None:
    idempotency.store(
        conn,
        project="default",
        path="/v1/jobs",
        key=key,
        body_hash="hash",
        status=201,
        body="{}",
        headers={"ETag": '"1"'},
    )
