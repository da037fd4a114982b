"""What a step's result does to the job: the columns, the history, the end."""

from itertools import pairwise
from typing import Any

import pytest
from shunter_schemas.states import LIVE_STATES, Health, Reason, State
from shunter_store.errors import Conflict, Overtaken
from shunter_store.job import due, events, jobs, outbox, steps, wishes
from shunter_store.job.jobs import JobRow
from shunter_store.job.lifecycle import IllegalTransition, Trigger
from shunter_store.job.steps import Change
from shunter_store.node import ledger
from shunter_store.sql.database import Database
from support.store_rows import advance, claim_job, claim_one, intend, new_job, new_node, reread

UP = (Trigger.PLANNED, Trigger.NODES_READY, Trigger.TRAINER_UP)


def test_a_job_goes_through_its_life_and_every_move_is_in_its_history(database: Database) -> None:
    job = new_job(database)
    running = advance(database, job.id, *UP)
    step(database, job.id, Change(Trigger.STOP, Reason.DONE))

    ended = step(database, job.id, Change(Trigger.NODES_GONE))

    assert running.state is State.RUNNING
    assert running.started_at is not None
    assert (ended.state, ended.reason, ended.outcome) == (State.SUCCEEDED, Reason.DONE, State.SUCCEEDED)
    assert ended.finished_at is not None
    assert ended.released_at is not None
    moves = database.read(lambda conn: events.transitions(conn, job.id))
    assert [(move.from_state, move.to_state) for move in moves] == [
        (State.QUEUED, State.PROVISIONING),
        (State.PROVISIONING, State.STARTING),
        (State.STARTING, State.RUNNING),
        (State.RUNNING, State.STOPPING),
        (State.STOPPING, State.SUCCEEDED),
    ]
    told = {event.seq: event for event in database.read(lambda conn: events.page(conn, job.id))}
    assert [told[move.seq].type for move in moves] == ["job.state"] * 5
    assert [told[move.seq].data["to"] for move in moves] == [move.to_state for move in moves]
    assert list(told) == list(range(1, ended.event_seq + 1))


def test_the_event_of_the_state_is_the_last_of_a_step(database: Database) -> None:
    job = new_job(database)

    step(database, job.id, Change(Trigger.STOP, Reason.INVALID, "no such model", events=[("plan.refused", {"a": 1})]))

    told = database.read(lambda conn: events.page(conn, job.id, after=1))
    assert [event.type for event in told] == ["plan.refused", "job.outcome", "job.state"]
    assert told[1].data == {"outcome": "failed", "reason": "invalid"}
    assert told[2].data == {
        "from": "queued",
        "to": "stopping",
        "trigger": "stop",
        "reason": "invalid",
        "message": "no such model",
        "generation": 1,
    }


def test_a_step_sets_columns_and_the_revision_grows_once(database: Database) -> None:
    job = new_job(database)
    columns: dict[str, Any] = {"plan": {"nodes": 2}, "provider": "local", "health": Health.UNREACHABLE, "generation": 3}

    changed = step(database, job.id, Change(next_in_s=1, set=columns))

    assert {name: getattr(changed, name) for name in columns} == columns
    assert changed.revision == job.revision + 1
    assert reread(database, job.id) == changed


def test_a_step_that_changes_nothing_leaves_the_revision(database: Database) -> None:
    job = new_job(database)

    same = step(database, job.id, Change(next_in_s=1, set={"health": Health.OK, "waiting": None}))

    assert same == job


def test_facts_are_merged(database: Database) -> None:
    job = new_job(database)
    step(database, job.id, Change(set={"facts": {"a": 1, "b": 1}}))

    changed = step(database, job.id, Change(set={"facts": {"b": 2}}))

    assert changed.facts == {"a": 1, "b": 2}


def test_a_step_may_not_set_what_follows_from_the_trigger(database: Database) -> None:
    new_job(database)
    claim = claim_one(database)

    with pytest.raises(ValueError, match="may not set \\['state'\\]"):
        database.write(lambda conn: steps.apply(conn, claim, Change(set={"state": State.FAILED})))


def test_what_a_job_waits_for_is_cleared_when_it_leaves_the_queue(database: Database) -> None:
    job = new_job(database)
    step(database, job.id, Change(set={"waiting": {"reason": "no_capacity"}}))

    planned = advance(database, job.id, Trigger.PLANNED)

    assert planned.waiting is None


def test_an_illegal_trigger_writes_nothing_and_keeps_the_lease(database: Database) -> None:
    job = new_job(database)
    claim = claim_one(database)

    with pytest.raises(IllegalTransition):
        database.write(lambda conn: steps.apply(conn, claim, Change(Trigger.TRAINER_UP, set={"message": "x"})))

    assert reread(database, job.id) == job
    database.write(lambda conn: steps.apply(conn, claim, Change(Trigger.PLANNED)))


PATHS: dict[State, tuple[Trigger, ...]] = {
    State.QUEUED: (),
    State.PROVISIONING: UP[:1],
    State.STARTING: UP[:2],
    State.RUNNING: UP,
    State.RECOVERING: (*UP, Trigger.NODE_LOST),
}


@pytest.mark.parametrize("state", sorted(LIVE_STATES - {State.STOPPING}))
def test_a_stop_fixes_the_outcome_at_once_in_every_live_state(database: Database, state: State) -> None:
    job = new_job(database)
    advance(database, job.id, *PATHS[state])

    stopped = step(database, job.id, Change(Trigger.STOP, Reason.USER_ERROR, "line 3"))

    assert (stopped.state, stopped.reason, stopped.message) == (State.STOPPING, Reason.USER_ERROR, "line 3")
    assert stopped.outcome is State.FAILED
    assert stopped.finished_at is not None
    assert stopped.released_at is None


def test_the_first_stop_reason_wins(database: Database) -> None:
    job = new_job(database)
    first = step(database, job.id, Change(Trigger.STOP, Reason.OUT_OF_MEMORY, "first"))

    second = step(database, job.id, Change(Trigger.STOP, Reason.CANCELLED_BY_USER, "second"))

    assert second == first


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING, State.RECOVERING])
def test_a_cancel_wins_against_a_stop_that_was_decided_before_it_came(database: Database, state: State) -> None:
    job = new_job(database)
    advance(database, job.id, *PATHS[state])
    claim = claim_job(database, job.id)
    database.write(lambda conn: wishes.request_cancel(conn, job.id, by="me"))

    stop = Change(Trigger.STOP, Reason.USER_ERROR, "line 3", next_in_s=0)
    stopped = database.write(lambda conn: steps.apply(conn, claim, stop))
    ended = step(database, job.id, Change(Trigger.NODES_GONE))

    assert (stopped.state, stopped.reason, stopped.message) == (State.STOPPING, Reason.CANCELLED_BY_USER, None)
    assert (ended.state, ended.outcome) == (State.CANCELLED, State.CANCELLED)


GOING_PAST = {
    "an end": Change(Trigger.STOP, Reason.USER_ERROR, "line 3"),
    "another start": Change(Trigger.NODE_LOST, set={"generation": 2}),
}


@pytest.mark.parametrize("change", GOING_PAST.values(), ids=GOING_PAST.keys())
def test_an_end_or_another_start_is_decided_anew_when_the_job_was_woken_meanwhile(
    database: Database, change: Change
) -> None:
    """What woke it may be the last rank that was done: a success counts from when it is written down."""
    job = new_job(database)
    seen = advance(database, job.id, *UP)
    claim = claim_job(database, job.id)
    database.write(lambda conn: due.wake(conn, [job.id]))

    with pytest.raises(Overtaken):
        database.write(lambda conn: steps.apply(conn, claim, change))

    assert reread(database, job.id) == seen
    database.write(lambda conn: steps.apply(conn, claim, Change(next_in_s=0.0)))
    again = claim_job(database, job.id)
    database.write(lambda conn: steps.apply(conn, again, change))


def test_ranks_that_were_done_before_a_cancel_came_have_succeeded(database: Database) -> None:
    job = new_job(database)
    advance(database, job.id, *UP)
    claim = claim_job(database, job.id)
    database.write(lambda conn: wishes.request_cancel(conn, job.id, by="me"))

    stopped = database.write(lambda conn: steps.apply(conn, claim, Change(Trigger.STOP, Reason.DONE)))

    assert (stopped.reason, stopped.outcome) == (Reason.DONE, State.SUCCEEDED)


def test_a_stop_needs_a_reason(database: Database) -> None:
    new_job(database)
    claim = claim_one(database)

    with pytest.raises(ValueError, match="needs a reason"):
        database.write(lambda conn: steps.apply(conn, claim, Change(Trigger.STOP)))


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING, State.RECOVERING])
@pytest.mark.parametrize(
    ("second", "reason", "outcome"),
    [
        (Reason.DONE, Reason.DONE, State.SUCCEEDED),
        (Reason.CANCELLED_BY_USER, Reason.CANCELLED_BY_USER, State.CANCELLED),
        (Reason.USER_ERROR, Reason.CANCELLED_BY_USER, State.CANCELLED),
    ],
)
def test_a_cancel_of_ranks_that_may_be_done_is_settled_by_a_second_stop(
    database: Database, state: State, second: Reason, reason: Reason, outcome: State
) -> None:
    job = new_job(database)
    advance(database, job.id, *PATHS[state])
    cancelled = step(database, job.id, Change(Trigger.STOP, Reason.CANCELLED_BY_USER))

    settled = step(database, job.id, Change(Trigger.STOP, second))

    assert (cancelled.state, cancelled.outcome, cancelled.finished_at) == (State.STOPPING, None, None)
    assert (settled.reason, settled.outcome) == (reason, outcome)
    assert settled.finished_at is not None
    told = database.read(lambda conn: events.page(conn, job.id))
    assert [event.data["outcome"] for event in told if event.type == "job.outcome"] == [outcome]


def test_an_open_cancel_is_settled_when_the_nodes_are_gone(database: Database) -> None:
    job = new_job(database)
    advance(database, job.id, *UP)
    step(database, job.id, Change(Trigger.STOP, Reason.CANCELLED_BY_USER))

    ended = step(database, job.id, Change(Trigger.NODES_GONE))

    assert (ended.state, ended.outcome) == (State.CANCELLED, State.CANCELLED)
    assert ended.finished_at is not None


def test_a_job_cannot_end_while_the_ledger_holds_an_open_row(database: Database) -> None:
    job = new_job(database)
    [node] = intend(database, job.id, new_node())
    claim = claim_job(database, job.id)
    database.write(lambda conn: steps.apply(conn, claim, Change(Trigger.STOP, Reason.INVALID, next_in_s=0)))
    claim = claim_one(database)

    with pytest.raises(Conflict) as refused:
        database.write(lambda conn: steps.apply(conn, claim, Change(Trigger.NODES_GONE)))
    database.write(lambda conn: ledger.close_absent(conn, node.id, {"kind": "never_begun"}))
    ended = database.write(lambda conn: steps.apply(conn, claim, Change(Trigger.NODES_GONE)))

    assert refused.value.slug == "nodes_not_gone"
    assert ended.state is State.FAILED


def test_a_step_leaves_a_hint_only_when_the_job_is_due_at_once(database: Database) -> None:
    job = new_job(database)
    hints = [len(take(database))]
    for next_in_s in (60, None, 0):
        step(database, job.id, Change(next_in_s=next_in_s))
        hints.append(len(take(database)))

    # Between the steps `claim_job` wakes the job, which is one hint each.
    assert [after - before for before, after in pairwise(hints)] == [1, 1, 2]


def take(database: Database) -> list[outbox.OutboxRow]:
    return database.read(lambda conn: outbox.take(conn, 100))


def step(database: Database, job_id: str, change: Change) -> JobRow:
    claim = claim_job(database, job_id)
    applied = database.write(lambda conn: steps.apply(conn, claim, change))
    assert applied == database.read(lambda conn: jobs.get(conn, job_id))
    return applied
