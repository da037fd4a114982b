"""Pages of jobs by every filter, and counts."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from shunter_schemas.api import JobPatch
from shunter_schemas.job import load_job
from shunter_schemas.states import Reason, State
from shunter_store.job import job_lists, steps, wishes
from shunter_store.job.job_lists import JobFilter, JobLine
from shunter_store.job.lifecycle import Trigger
from shunter_store.sql.database import Database
from shunter_store.tables import jobs as jobs_table
from sqlalchemy import event, update
from support.documents import tiny_lm
from support.store_rows import claim_job, new_job

ODD = 'odd "key"\\.$'
COMMIT = "5f70bf18a086007016e948b04aed3b82103a36be"

FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["alpha", "alpha-2", "beta", "gamma"]),
    ({"name": "alpha"}, ["alpha"]),
    ({"name": "nothing"}, []),
    ({"name_prefix": "alpha"}, ["alpha", "alpha-2"]),
    ({"name_prefix": "alpha-"}, ["alpha-2"]),
    ({"name_prefix": "%"}, []),
    ({"labels": [("team", "nlp")]}, ["alpha", "beta"]),
    ({"labels": [("team", None)]}, ["alpha", "alpha-2", "beta"]),
    ({"labels": [("team", "nlp"), (ODD, "x")]}, ["beta"]),
    ({"labels": [(ODD, None), ("team", None)]}, ["beta"]),
    ({"labels": [("team", "nl")]}, []),
    ({"labels": [("tea", None)]}, []),
    ({"states": [State.STOPPING]}, ["gamma"]),
    ({"states": [State.QUEUED, State.STOPPING]}, ["alpha", "alpha-2", "beta", "gamma"]),
    ({"states": [State.QUEUED, State.FAILED]}, ["alpha", "alpha-2", "beta"]),
    ({"states": [State.FAILED]}, []),
    ({"created_by": "ann"}, ["alpha-2", "gamma"]),
    ({"provider": "local"}, ["beta"]),
    ({"commit": COMMIT}, ["beta"]),
    ({"commit": COMMIT[:7]}, ["beta"]),
    ({"commit": "5f70bf0"}, []),
    ({"commit": COMMIT[:7], "name_prefix": "b"}, ["beta"]),
    ({"commit": COMMIT[:7], "name_prefix": "a"}, []),
    ({"commit": COMMIT[:7], "labels": [("team", None)]}, ["beta"]),
    ({"name_prefix": "a", "created_by": "ann", "labels": [("team", None)], "states": [State.QUEUED]}, ["alpha-2"]),
    ({"labels": [("team", None)], "states": [State.QUEUED, State.RUNNING]}, ["alpha", "alpha-2", "beta"]),
]


@pytest.fixture
def filled(database: Database) -> Database:
    """Four jobs of one project and one of another."""
    new_job(database, name="alpha", labels={"team": "nlp"})
    new_job(database, name="alpha-2", labels={"team": "vision"}, created_by="ann")
    beta = new_job(database, name="beta", labels={"team": "nlp", ODD: "x"})
    set_job(database, beta.id, provider="local", source_commit=COMMIT)
    gamma = new_job(database, name="gamma", created_by="ann")
    stop(database, gamma.id)
    new_job(database, name="alpha", project="other", labels={"team": "nlp"}, created_by="ann")
    return database


@pytest.mark.parametrize(("filters", "expected"), FILTERS, ids=[str(filters) for filters, _ in FILTERS])
def test_pages_hold_the_jobs_that_fit_newest_first(
    filled: Database, filters: dict[str, Any], expected: list[str]
) -> None:
    page = listed(filled, JobFilter(**filters))

    assert sorted(job.name for job in page) == expected
    assert page == sorted(page, key=lambda job: (job.created_at, job.id), reverse=True)


@pytest.mark.parametrize(("filters", "expected"), FILTERS, ids=[str(filters) for filters, _ in FILTERS])
def test_pages_hold_the_same_jobs_where_nothing_is_rare(
    filled: Database, monkeypatch: pytest.MonkeyPatch, filters: dict[str, Any], expected: list[str]
) -> None:
    monkeypatch.setattr(job_lists, "FEW", 1)

    page = listed(filled, JobFilter(**filters))

    assert sorted(job.name for job in page) == expected
    assert page == sorted(page, key=lambda job: (job.created_at, job.id), reverse=True)


@pytest.mark.parametrize(("filters", "expected"), FILTERS, ids=[str(filters) for filters, _ in FILTERS])
def test_every_filter_goes_on_where_a_page_ended(
    filled: Database, filters: dict[str, Any], expected: list[str]
) -> None:
    where = JobFilter(**filters)
    seen: list[JobLine] = []
    while page := listed(filled, where, limit=1, before=(seen[-1].created_at, seen[-1].id) if seen else None):
        seen += page

    assert seen == listed(filled, where)
    assert sorted(job.name for job in seen) == expected


def test_other_projects_are_never_shown(filled: Database) -> None:
    page = filled.read(lambda conn: job_lists.page(conn, project="other", where=JobFilter(labels=[("team", "nlp")])))

    assert [job.name for job in page] == ["alpha"]


def test_a_list_can_be_bounded_by_moments(database: Database) -> None:
    first, second, third = sorted((new_job(database) for _ in range(3)), key=lambda job: job.created_at)
    for shift, job in enumerate((first, second, third)):
        set_job(database, job.id, created_at=first.created_at + timedelta(seconds=shift))
    at = first.created_at

    after = listed(database, JobFilter(created_after=at))
    before = listed(database, JobFilter(created_before=at + timedelta(seconds=2)))
    between = listed(database, JobFilter(created_after=at, created_before=at + timedelta(seconds=2)))

    assert [job.id for job in after] == [third.id, second.id]
    assert [job.id for job in before] == [second.id, first.id]
    assert [job.id for job in between] == [second.id]


def test_a_page_is_not_moved_by_jobs_that_come_meanwhile(database: Database) -> None:
    old = sorted((new_job(database) for _ in range(3)), key=lambda job: (job.created_at, job.id))
    first = listed(database, JobFilter(), limit=1)
    new_job(database)

    second = listed(database, JobFilter(), before=(first[0].created_at, first[0].id), limit=5)

    assert [job.id for job in second] == [old[1].id, old[0].id]


def test_labels_that_changed_are_found_by_what_they_are_now(database: Database) -> None:
    spec = load_job({**tiny_lm(), "labels": {"team": "nlp", "draft": "yes"}}).model_dump(mode="json")
    job = new_job(database, spec=spec, labels=spec["labels"])
    patch = JobPatch(labels={"team": "vision", "draft": None})
    database.write(lambda conn: wishes.patch(conn, job.id, patch, by="me", revisions=None))

    found = [
        bool(listed(database, JobFilter(labels=[label])))
        for label in (("team", "vision"), ("team", "nlp"), ("draft", None))
    ]

    assert found == [True, False, False]


def test_many_names_that_begin_alike_are_found_by_their_age(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_lists, "FEW", 3)
    made = [new_job(database, name=f"sweep-{number}") for number in range(5)]
    new_job(database, name="swee")

    page = listed(database, JobFilter(name_prefix="sweep-"), limit=3)

    newest = sorted(made, key=lambda job: (job.created_at, job.id), reverse=True)
    assert [job.id for job in page] == [job.id for job in newest[:3]]


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (JobFilter(), "ix_jobs_newest"),
        (JobFilter(states=[State.QUEUED]), "ix_jobs_newest_by_state"),
        (JobFilter(states=[State.QUEUED, State.RUNNING]), "ix_jobs_newest_by_state"),
        (JobFilter(name="x"), "ix_jobs_newest_by_name"),
        (JobFilter(created_by="x"), "ix_jobs_newest_by_creator"),
        (JobFilter(provider="x"), "ix_jobs_newest_by_provider"),
        (JobFilter(commit=COMMIT), "ix_jobs_newest_by_source_commit"),
        (JobFilter(labels=[("a", "b")]), "ix_job_labels_newest_by_value"),
        (JobFilter(labels=[("a", None)]), "ix_job_labels_newest"),
        (JobFilter(labels=[("a", None), ("b", "c")]), "ix_job_labels_newest"),
    ],
    ids=str,
)
def test_each_filter_walks_along_an_index_in_the_order_of_the_page(
    sqlite_url: str, where: JobFilter, index: str
) -> None:
    with closing(Database.connect(sqlite_url)) as database:
        job = new_job(database)
        before = (job.created_at, job.id)

        plan = list(plans_of(database, where, before))

    assert [line for line in plan if f"{index} " in line]
    assert [line for line in plan if "SCAN jobs" in line] == []
    merges_a_few = len(where.states) > 1  # pages of each state, each in order
    assert merges_a_few or "USE TEMP B-TREE FOR ORDER BY" not in plan


def test_few_jobs_in_a_state_are_found_by_it_whatever_their_labels(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = JobFilter(labels=[("a", "b")], states=[State.RUNNING, State.QUEUED])
    with closing(Database.connect(sqlite_url)) as database:
        job = new_job(database, labels={"a": "b"})
        before = (job.created_at + timedelta(seconds=1), job.id)

        of_few = list(plans_of(database, where, before))
        monkeypatch.setattr(job_lists, "FEW", 1)
        of_many = list(plans_of(database, where, before))

    assert [line for line in of_few if "SEARCH jobs USING INDEX ix_jobs_newest_by_state " in line]
    assert [line for line in of_few if "ix_job_labels_newest" in line] == []
    assert [line for line in of_many if "ix_job_labels_newest_by_value " in line]


def test_counts_are_by_state_and_project(filled: Database) -> None:
    paused = new_job(filled)
    filled.write(lambda conn: wishes.request_pause(conn, paused.id, by="me"))

    states, resting = filled.read(lambda conn: job_lists.counts(conn, "default"))

    assert set(states) == set(State)
    assert {state: number for state, number in states.items() if number} == {State.QUEUED: 4, State.STOPPING: 1}
    assert resting == 1
    assert filled.read(lambda conn: job_lists.counts(conn, "nobody"))[0][State.QUEUED] == 0


def test_a_line_says_that_the_job_is_paused(database: Database) -> None:
    job = new_job(database)
    database.write(lambda conn: wishes.request_pause(conn, job.id, by="me"))

    [line] = listed(database, JobFilter())

    assert line.pause_requested_at is not None


def listed(database: Database, where: JobFilter, **more: Any) -> list[JobLine]:
    return database.read(lambda conn: job_lists.page(conn, project="default", where=where, **more))


def plans_of(database: Database, where: JobFilter, before: Any) -> Iterator[str]:
    """What SQLite says it does for the statements of a page."""
    engine = database._reader
    asked: list[tuple[str, Any]] = []

    def note(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if statement.startswith("SELECT"):
            asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    listed(database, where, before=before)
    event.remove(engine, "before_cursor_execute", note)
    for statement, parameters in asked:
        explained = database.read(
            lambda conn, s=statement, p=parameters: conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {s}", p).all()  # type: ignore[misc]
        )
        yield from (str(row[3]) for row in explained)


def set_job(database: Database, job_id: str, **values: object) -> None:
    its = jobs_table.c.id == job_id
    database.write(lambda conn: conn.execute(update(jobs_table).where(its).values(**values)))


def stop(database: Database, job_id: str) -> None:
    claim = claim_job(database, job_id)
    database.write(lambda conn: steps.apply(conn, claim, steps.Change(Trigger.STOP, Reason.INVALID)))
