"""What users ask of a job: kept as desired state, once, and seen by the next step."""

from collections.abc import Callable
from typing import Any

import pytest
from shunter_schemas.api import JobPatch
from shunter_schemas.changes import parse_request
from shunter_schemas.faults import DocumentError
from shunter_schemas.job import load_job
from shunter_schemas.states import Reason, State
from shunter_store.errors import Conflict, NotFound, RevisionChanged
from shunter_store.job import due, events, job_lists, jobs, steps, wishes
from shunter_store.job.job_lists import JobFilter
from shunter_store.job.lifecycle import Trigger
from shunter_store.sql.database import Database
from shunter_store.tables import job_due
from shunter_store.tables import jobs as jobs_table
from sqlalchemy import select, update
from support.documents import body, tiny_lm
from support.store_rows import advance, claim_job, new_job, reread

TO_RUNNING = (Trigger.PLANNED, Trigger.NODES_READY, Trigger.TRAINER_UP)
ASKS: dict[str, Callable[..., jobs.JobRow]] = {
    "cancel": wishes.request_cancel,
    "pause": wishes.request_pause,
    "resume": wishes.request_resume,
    "checkpoint": wishes.request_checkpoint,
}


# --- cancel ------------------------------------------------------------------------------------------------------


def test_a_cancel_is_recorded_once_and_wakes_the_job_at_the_highest_urgency(database: Database) -> None:
    job = new_job(database, priority=3)
    park(database, job.id)
    other = new_job(database, priority=1)

    first = database.write(lambda conn: wishes.request_cancel(conn, job.id, by="tester"))
    second = database.write(lambda conn: wishes.request_cancel(conn, job.id, by="tester"))

    assert first.cancel_requested_at is not None
    assert second == first
    types = [event.type for event in database.read(lambda conn: events.page(conn, job.id))]
    assert types == ["job.created", "job.cancel_requested"]
    claims = database.write(lambda conn: due.claim(conn, owner="w", limit=5))
    assert [claim.job_id for claim in claims] == [job.id, other.id]


def test_a_cancel_of_a_stopping_or_cancelled_job_changes_nothing(database: Database) -> None:
    job = new_job(database)
    stopping = stop(database, job.id, Reason.CANCELLED_BY_USER)
    while_stopping = database.write(lambda conn: wishes.request_cancel(conn, job.id, by="tester"))
    ended = advance(database, job.id, Trigger.NODES_GONE)

    after = database.write(lambda conn: wishes.request_cancel(conn, job.id, by="tester"))

    assert while_stopping == stopping
    assert after == ended
    assert after.state is State.CANCELLED


@pytest.mark.parametrize("reason", [Reason.DONE, Reason.USER_ERROR])
def test_a_cancel_of_a_job_whose_end_is_fixed_is_a_conflict(database: Database, reason: Reason) -> None:
    job = new_job(database)
    stop(database, job.id, reason)

    with pytest.raises(Conflict) as refused:
        database.write(lambda conn: wishes.request_cancel(conn, job.id, by="tester"))

    assert refused.value.slug == "job_ended"
    assert reread(database, job.id).cancel_requested_at is None


def test_a_cancel_of_no_job_is_not_found(database: Database) -> None:
    with pytest.raises(NotFound):
        database.write(lambda conn: wishes.request_cancel(conn, "job_nothing", by="tester"))


def test_many_are_cancelled_by_label_and_state_and_the_others_left(database: Database) -> None:
    first = new_job(database, labels={"team": "nlp"})
    other = new_job(database, labels={"team": "vision"})
    second = new_job(database, labels={"team": "nlp"})
    running = new_job(database, labels={"team": "nlp"})
    advance(database, running.id, *TO_RUNNING)

    ids, more = cancel_many(database, labels=[("team", "nlp")], states=[State.QUEUED])

    assert (set(ids), more) == ({first.id, second.id}, False)
    asked = [job.id for job in (first, second, other, running) if reread(database, job.id).cancel_requested_at]
    assert asked == [first.id, second.id]
    for job in (first, second):
        last = database.read(lambda conn, job=job: events.page(conn, job.id))[-1]  # type: ignore[misc]
        assert (last.seq, last.type, last.data) == (2, "job.cancel_requested", {"by": "me"})
        assert urgency(database, job.id) == 0


def test_a_bulk_cancel_asks_each_job_once_and_none_that_ended(database: Database) -> None:
    job = new_job(database)
    done = new_job(database)
    stop(database, done.id, Reason.DONE)
    cancel_many(database, name="a job")

    again = cancel_many(database, name="a job")

    assert again == ([], False)
    assert [event.type for event in database.read(lambda conn: events.page(conn, job.id))].count(
        "job.cancel_requested"
    ) == 1
    assert reread(database, done.id).cancel_requested_at is None


def test_a_bulk_cancel_takes_a_bounded_number_and_says_that_there_are_more(database: Database) -> None:
    made = [new_job(database) for _ in range(5)]

    first = cancel_many(database, name="a job", most=3)
    second = cancel_many(database, name="a job", most=3)

    assert (len(first[0]), first[1]) == (3, True)
    assert (len(second[0]), second[1]) == (2, False)
    assert {*first[0], *second[0]} == {job.id for job in made}


def test_a_bulk_cancel_stays_in_its_project(database: Database) -> None:
    new_job(database, project="other")

    assert cancel_many(database, name="a job") == ([], False)


# --- pause, resume, checkpoint -----------------------------------------------------------------------------------


def test_a_pause_is_recorded_once_and_wakes_the_job(database: Database) -> None:
    job = new_job(database)
    park(database, job.id)

    first = ask(database, "pause", job.id)
    second = ask(database, "pause", job.id)

    assert first.pause_requested_at is not None
    assert first.revision == job.revision + 1
    assert second == first
    assert database.read(due.count_due) == 1
    assert told(database, job.id) == ["job.created", "job.pause_requested"]


def test_a_resume_takes_the_pause_back_and_wakes_the_job(database: Database) -> None:
    job = new_job(database)
    ask(database, "pause", job.id)
    park(database, job.id)
    waiting = {"reason": "paused", "detail": "it rests until somebody resumes it", "tried": []}
    database.write(lambda conn: conn.execute(update(jobs_table).values(waiting=waiting)))

    resumed = ask(database, "resume", job.id)

    assert resumed.pause_requested_at is None
    assert resumed.waiting is None
    assert database.read(due.count_due) == 1
    assert told(database, job.id) == ["job.created", "job.pause_requested", "job.resume_requested"]


def test_a_checkpoint_is_asked_of_a_job_that_runs_as_often_as_one_likes(database: Database) -> None:
    job = new_job(database)
    advance(database, job.id, *TO_RUNNING)

    ask(database, "checkpoint", job.id)
    ask(database, "checkpoint", job.id)

    history = database.read(lambda conn: events.page(conn, job.id))
    assert [event.data["wish"] for event in history if event.type == "job.checkpoint_requested"] == [1, 2]


@pytest.mark.parametrize(
    ("wish", "state", "slug"),
    [
        ("resume", "queued", "not_paused"),
        ("resume", "running", "not_paused"),
        ("checkpoint", "queued", "not_running"),
        ("checkpoint", "paused", "not_running"),
        ("pause", "cancelling", "job_stopping"),
        ("resume", "cancelling", "job_stopping"),
        ("checkpoint", "cancelling", "job_stopping"),
        ("pause", "stopping", "job_ended"),
        ("pause", "succeeded", "job_ended"),
        ("resume", "succeeded", "job_ended"),
        ("checkpoint", "succeeded", "job_ended"),
    ],
)
def test_a_wish_that_the_state_does_not_allow_is_a_conflict_that_changes_nothing(
    database: Database, wish: str, state: str, slug: str
) -> None:
    job = in_state(database, state)

    with pytest.raises(Conflict) as refused:
        ask(database, wish, job.id)

    assert refused.value.slug == slug
    assert reread(database, job.id) == job


@pytest.mark.parametrize("wish", list(ASKS))
def test_a_wish_for_no_job_is_not_found(database: Database, wish: str) -> None:
    with pytest.raises(NotFound):
        ask(database, wish, "job_nothing")


@pytest.mark.parametrize("state", ["queued", "running", "paused", "pausing"])
def test_a_cancel_is_taken_in_every_live_state(database: Database, state: str) -> None:
    job = in_state(database, state)

    asked = ask(database, "cancel", job.id)

    assert asked.cancel_requested_at is not None
    assert urgency(database, job.id) == 0


# --- changes -----------------------------------------------------------------------------------------------------


def test_a_patch_changes_the_document_the_columns_and_the_turn(database: Database) -> None:
    job = trained(database, labels={"team": "nlp"})
    park(database, job.id)

    changed = patch(database, job, {"labels": {"run": "7"}, "priority": "high", "limits": {"max_duration_s": 60}})

    assert (changed.labels, changed.priority) == ({"team": "nlp", "run": "7"}, 1)
    assert changed.spec["limits"]["max_duration_s"] == 60
    assert (changed.spec["labels"], changed.spec["priority"]) == ({"team": "nlp", "run": "7"}, "high")
    assert changed.revision == job.revision + 1
    assert urgency(database, job.id) == 1
    assert database.read(due.count_due) == 1
    last = database.read(lambda conn: events.page(conn, job.id))[-1]
    assert (last.type, last.data) == (
        "job.changed",
        {"by": "me", "labels": {"run": "7"}, "priority": "high", "limits": {"max_duration_s": 60}},
    )


def test_a_patch_that_changes_nothing_leaves_the_revision(database: Database) -> None:
    job = trained(database, labels={"team": "nlp"})

    same = patch(database, job, {"labels": {"team": "nlp", "absent": None}})

    assert same == job
    assert told(database, job.id) == ["job.created"]


def test_a_patch_of_labels_alone_wakes_nobody(database: Database) -> None:
    job = trained(database)
    park(database, job.id)

    patch(database, job, {"labels": {"team": "nlp"}})

    assert database.read(due.count_due) == 0


def test_a_patch_of_another_revision_writes_nothing(database: Database) -> None:
    job = trained(database)
    ask(database, "pause", job.id)
    before = reread(database, job.id)

    with pytest.raises(RevisionChanged) as refused:
        patch(database, job, {"priority": "low"})

    assert refused.value.revision == before.revision
    assert reread(database, job.id) == before


def test_a_priority_does_not_push_back_a_job_that_ends(database: Database) -> None:
    job = trained(database)
    cancelling = ask(database, "cancel", job.id)

    with pytest.raises(Conflict) as refused:
        patch(database, cancelling, {"priority": "low"})

    assert refused.value.slug == "job_stopping"
    assert urgency(database, job.id) == 0


def test_labels_of_an_ended_job_change_without_an_event_after_its_end(database: Database) -> None:
    job = trained(database)
    stop(database, job.id, Reason.DONE)
    ended = advance(database, job.id, Trigger.NODES_GONE)

    changed = patch(database, ended, {"labels": {"keep": "yes"}})

    assert changed.labels == {"keep": "yes"}
    assert changed.revision == ended.revision + 1
    assert changed.event_seq == ended.event_seq
    assert [job.id for job in database.read(lambda conn: by_label(conn, "keep"))] == [job.id]
    with pytest.raises(Conflict, match="succeeded"):
        patch(database, changed, {"limits": {"max_cost_usd": 5}})


def test_a_patch_that_makes_the_document_invalid_writes_nothing(database: Database) -> None:
    job = trained(database, labels={f"l{number}": "" for number in range(32)})

    with pytest.raises(DocumentError):
        patch(database, job, {"labels": {"one-more": ""}})

    assert reread(database, job.id) == job


def by_label(conn: Any, key: str) -> list[job_lists.JobLine]:
    return job_lists.page(conn, project="default", where=JobFilter(labels=[(key, None)]))


def ask(database: Database, wish: str, job_id: str) -> jobs.JobRow:
    return database.write(lambda conn: ASKS[wish](conn, job_id, by="me"))


def patch(database: Database, job: jobs.JobRow, changes: dict[str, Any]) -> jobs.JobRow:
    wanted = parse_request(body(changes), JobPatch)
    return database.write(lambda conn: wishes.patch(conn, job.id, wanted, by="me", revisions=[job.revision]))


def cancel_many(database: Database, most: int = 500, **filters: Any) -> tuple[list[str], bool]:
    where = JobFilter(**filters)
    return database.write(lambda conn: wishes.cancel_many(conn, project="default", where=where, by="me", most=most))


def in_state(database: Database, state: str) -> jobs.JobRow:
    job = new_job(database)
    match state:
        case "running":
            advance(database, job.id, *TO_RUNNING)
        case "paused":
            ask(database, "pause", job.id)
        case "pausing":
            advance(database, job.id, *TO_RUNNING, Trigger.PAUSE)
            ask(database, "pause", job.id)
        case "cancelling":
            ask(database, "pause", job.id)
            ask(database, "cancel", job.id)
        case "stopping":
            stop(database, job.id, Reason.INVALID)
        case "succeeded":
            stop(database, job.id, Reason.DONE)
            advance(database, job.id, Trigger.NODES_GONE)
    return reread(database, job.id)


def trained(database: Database, labels: dict[str, str] | None = None) -> jobs.JobRow:
    """A job with a whole document, as changes need it."""
    document = load_job({**tiny_lm(), "labels": labels or {}})
    return new_job(database, spec=document.model_dump(mode="json"), labels=document.labels)


def told(database: Database, job_id: str) -> list[str]:
    return [event.type for event in database.read(lambda conn: events.page(conn, job_id))]


def urgency(database: Database, job_id: str) -> int:
    asked = select(job_due.c.urgency).where(job_due.c.job_id == job_id)
    found: int = database.read(lambda conn: conn.execute(asked).scalar_one())
    return found


def stop(database: Database, job_id: str, reason: Reason) -> jobs.JobRow:
    claim = claim_job(database, job_id)
    return database.write(lambda conn: steps.apply(conn, claim, steps.Change(Trigger.STOP, reason)))


def park(database: Database, job_id: str) -> None:
    claim = claim_job(database, job_id)
    database.write(lambda conn: steps.apply(conn, claim, steps.Change()))
