"""The state machine, looked at as a whole."""

from collections import Counter

import pytest
from shunter_schemas.states import LIVE_STATES, TERMINAL_STATES, Reason, State
from shunter_store.job.lifecycle import OUTCOME, TABLE, Effect, IllegalTransition, Trigger, follow, is_terminal


def test_no_state_and_trigger_stand_in_two_rows() -> None:
    pairs = Counter((row.state, row.trigger) for row in TABLE)

    assert [pair for pair, rows in pairs.items() if rows > 1] == []


def test_nothing_leaves_a_terminal_state() -> None:
    assert [row for row in TABLE if row.state in TERMINAL_STATES] == []


@pytest.mark.parametrize("state", sorted(LIVE_STATES))
def test_every_live_state_takes_a_stop_and_goes_to_stopping(state: State) -> None:
    target, _ = follow(state, Trigger.STOP, Reason.CANCELLED_BY_USER)

    assert target is State.STOPPING


def test_the_only_door_to_the_end_is_nodes_gone_out_of_stopping() -> None:
    doors = [row for row in TABLE if row.target is None or row.target in TERMINAL_STATES]

    assert [(row.state, row.trigger) for row in doors] == [(State.STOPPING, Trigger.NODES_GONE)]


def test_a_job_that_was_asked_to_pause_comes_to_rest_in_queued_by_one_door_only() -> None:
    asked = {(row.state, row.target) for row in TABLE if row.trigger is Trigger.PAUSE}
    rested = [(row.state, row.target) for row in TABLE if row.trigger is Trigger.PAUSED]

    assert asked == {
        (state, State.RECOVERING) for state in LIVE_STATES - {State.QUEUED, State.RECOVERING, State.STOPPING}
    }
    assert rested == [(State.RECOVERING, State.QUEUED)]


def test_every_state_with_nodes_leads_back_to_running_or_to_the_end() -> None:
    """No trap: from everywhere a job can still come to run, or it is ending."""
    ways = {(row.state, row.target) for row in TABLE if row.target is not None}
    reaches = {State.RUNNING}
    for _ in State:
        reaches |= {state for state, target in ways if target in reaches}

    assert reaches | {State.STOPPING} == LIVE_STATES


def test_every_reason_has_an_outcome_and_every_outcome_is_terminal() -> None:
    assert set(OUTCOME) == set(Reason)
    assert set(OUTCOME.values()) == TERMINAL_STATES


def test_every_state_is_reached_from_queued() -> None:
    reached = {State.QUEUED}
    for _ in State:
        ways = [row for row in TABLE if row.state in reached]
        reached |= {target for row in ways for target in ([row.target] if row.target else OUTCOME.values())}

    assert reached == set(State)


def test_every_trigger_and_every_effect_is_used() -> None:
    assert {row.trigger for row in TABLE} == set(Trigger)
    assert {row.effect for row in TABLE} == set(Effect)


@pytest.mark.parametrize("reason", sorted(Reason))
def test_the_stop_reason_decides_the_end(reason: Reason) -> None:
    target, _ = follow(State.STOPPING, Trigger.NODES_GONE, reason)

    assert target is OUTCOME[reason]
    assert is_terminal(target)


def test_a_trigger_that_the_state_does_not_take_is_refused_by_name() -> None:
    with pytest.raises(IllegalTransition, match="queued takes no trainer_up"):
        follow(State.QUEUED, Trigger.TRAINER_UP)


def test_nodes_gone_without_a_reason_is_refused() -> None:
    with pytest.raises(IllegalTransition):
        follow(State.STOPPING, Trigger.NODES_GONE)
