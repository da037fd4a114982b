"""The starts of a gang as the API shows them. Pure: rows in, attempts out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shunter_schemas.api import Attempt
from shunter_schemas.states import FailureClass, NodeState, Reason, State
from shunter_service.showing.attempts import attempts
from shunter_store.job.events import TransitionRow
from shunter_store.job.lifecycle import Trigger, follow
from shunter_store.job.standings import Standing
from shunter_store.node.gang import End, EndRow
from shunter_store.report.metrics import ProgressRow
from support.views import job, node

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
UP = (Trigger.PLANNED, Trigger.NODES_READY, Trigger.TRAINER_UP)
LOST = (Trigger.NODE_LOST, Trigger.NODES_READY, Trigger.TRAINER_UP)
PAUSED = (Trigger.PAUSE, Trigger.PAUSED)


def at(seq: int) -> datetime:
    return START + timedelta(seconds=seq)


def moves(*triggers: Trigger, reason: Reason | None = None) -> list[TransitionRow]:
    """The path that these triggers lead, one a second; each start has a generation of its own."""
    state, generation, rows = State.QUEUED, 0, []
    for seq, trigger in enumerate(triggers, 1):
        target, _ = follow(state, trigger, reason)
        generation += target is State.STARTING
        why = reason if target is State.STOPPING or state is State.STOPPING else None
        rows.append(TransitionRow("job_1", seq, at(seq), trigger, state, target, why, max(generation, 1)))
        state = target
    return rows


def end(generation: int, how: End, **given: Any) -> EndRow:
    values: dict[str, Any] = {"rank": 0, "failure_class": None, "reason": "", "message": "", "exit_code": None}
    return EndRow(generation, "node_0", how, at(9), **{**values, **given})


def failed(generation: int, cause: FailureClass, reason: str, message: str = "boom", **given: Any) -> EndRow:
    return end(generation, End.FAILED, failure_class=cause, reason=reason, message=message, **given)


def shown(path: list[TransitionRow], *ends: EndRow, steps: dict[int, int] | None = None, **row: Any) -> list[Attempt]:
    progress = [
        ProgressRow("job_1", generation, START, step, None, {}, None) for generation, step in (steps or {}).items()
    ]
    standing = Standing(job(path[-1].to_state, **row), progress=progress, nodes=[node()], moves=path, ends=ends)
    return list(attempts(standing))


def test_a_gang_that_runs_is_shown_as_it_is() -> None:
    [attempt] = shown(moves(*UP), steps={1: 40})

    assert (attempt.generation, attempt.how, attempt.last_step) == (1, "running", 40)
    assert (attempt.started_at, attempt.running_at, attempt.ended_at) == (at(2), at(3), None)
    assert attempt.nodes == ("shn-abcdef-0",)


def test_a_job_that_never_started_has_no_attempt() -> None:
    assert shown(moves(Trigger.PLANNED)) == []


@pytest.mark.parametrize(
    ("reason", "how"),
    [
        (Reason.DONE, "done"),
        (Reason.USER_ERROR, "failed"),
        (Reason.OUT_OF_MEMORY, "failed"),
        (Reason.RECOVERY_EXHAUSTED, "lost"),
        (Reason.CANCELLED_BY_USER, "stopped"),
        (Reason.DURATION_EXCEEDED, "stopped"),
    ],
)
def test_the_reason_of_the_job_says_how_its_last_start_ended(reason: Reason, how: str) -> None:
    path = moves(*UP, Trigger.STOP, Trigger.NODES_GONE, reason=reason)

    [attempt] = shown(path, reason=reason, message="why")

    assert (attempt.how, attempt.reason, attempt.ended_at) == (how, reason, at(4))
    assert attempt.message == ("why" if how in ("failed", "lost") else None)


def test_a_cancel_that_came_too_late_ended_a_start_that_was_done() -> None:
    path = moves(*UP, Trigger.STOP, Trigger.NODES_GONE, reason=Reason.CANCELLED_BY_USER)

    [attempt] = shown(path, reason=Reason.DONE)

    assert attempt.how == "done"


def test_each_start_has_its_own_end_cause_and_last_step() -> None:
    path = moves(*UP, *LOST, *LOST)
    ends = (failed(1, FailureClass.NODE, "signal", "SIGKILL"), failed(2, FailureClass.USER, "user_error"))

    first, second, third = shown(path, *ends, steps={1: 40, 2: 70, 3: 75})

    assert (first.how, first.reason, first.message, first.last_step) == ("lost", "signal", "SIGKILL", 40)
    assert (second.how, second.reason, second.last_step) == ("failed", "user_error", 70)
    assert (third.how, third.reason, third.last_step) == ("running", None, 75)
    assert (second.started_at, second.running_at, second.ended_at) == (at(5), at(6), at(7))


def test_a_node_that_went_without_a_word_is_a_reason_too() -> None:
    first, _ = shown(moves(*UP, *LOST))

    assert (first.how, first.reason) == ("lost", "node_lost")


def test_who_only_lost_a_peer_is_not_the_cause() -> None:
    peer = failed(1, FailureClass.NODE, "peer_lost")
    cause = failed(1, FailureClass.NODE, "gpu_lost", "XID 79")

    first, _ = shown(moves(*UP, *LOST), peer, cause)

    assert (first.reason, first.message) == ("gpu_lost", "XID 79")


def test_a_pause_ends_a_start_and_a_resume_makes_the_next() -> None:
    path = moves(*UP, *PAUSED, *UP)

    first, second = shown(path, end(1, End.STOPPED), steps={1: 40})

    assert (first.how, first.ended_at, first.last_step) == ("paused", at(4), 40)
    assert (second.how, second.generation) == ("running", 2)


def test_a_pause_that_came_too_late_ended_a_start_that_was_done() -> None:
    path = moves(*UP, Trigger.PAUSE, Trigger.STOP, reason=Reason.DONE)

    [attempt] = shown(path, end(1, End.DONE), reason=Reason.DONE)

    assert (attempt.how, attempt.reason) == ("done", "done")


def test_a_start_that_was_lost_before_its_ranks_were_up_never_ran() -> None:
    first, second = shown(moves(Trigger.PLANNED, Trigger.NODES_READY, *LOST))

    assert (first.running_at, first.how) == (None, "lost")
    assert second.running_at is not None


def test_a_node_that_was_kept_is_shown_in_each_start_that_it_was_part_of() -> None:
    kept = node(NodeState.READY, run_generation=2)
    standing = Standing(job(State.RUNNING), nodes=[kept], moves=moves(*UP, *LOST), ends=[end(1, End.STOPPED)])

    first, second = attempts(standing)

    assert first.nodes == second.nodes == (kept.token,)
