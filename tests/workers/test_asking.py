"""A program that asks to be started again (exit code 75), or hung, is; unless it does so over and over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shunter_schemas.states import Reason, State
from shunter_store.job.lifecycle import Trigger
from shunter_store.report.checkpoints import CheckpointRow
from shunter_workers.deciding import decide
from shunter_workers.decisions import Settle
from shunter_workers.view import Memory
from support.views import NOW, ago, document, job, node, node_failure, view

ASKED = "rank 0 exited with code 75 (asks to be started again), though nothing here stopped it"

HUNG = ("hang", "rank 1 exited with code 1\nNo step ended for 60 s. It stood in load (data.py:8).", 1)
CRASHED = ("crash", "rank 1 was killed by SIGSEGV", None)


def decided(
    asks: tuple[int, ...],
    *,
    saved_in: int | None = None,
    ended_s: float = 0.0,
    drained: bool = True,
    end: tuple[str, str, int | None] = ("interrupted", ASKED, 75),
    **parts: Any,
) -> Settle:
    """What becomes of a job whose generation 5 asks, after these did; `end`: reason, message and exit code."""
    row = job(State.RUNNING, document(**parts), memory=Memory(asks=asks), generation=5)
    reason, message, exit_code = end
    facts = replace(
        node_failure(node(), reason, message), exit_code=exit_code, ended_at=ago(ended_s), drained=drained, member=True
    )
    checkpoint = None
    if saved_in is not None:
        checkpoint = CheckpointRow("job_1", saved_in, 10, [], {}, 7, NOW, None)
    decision = decide(view(row, node(), parts=[facts], checkpoint=checkpoint), NOW)
    assert isinstance(decision, Settle)
    return decision


@pytest.mark.parametrize(
    ("before", "saved_in", "after"),
    [((), None, [5]), ((4,), None, [4, 5]), ((3, 4), 3, [4, 5]), ((3, 4), 5, []), ((), 2, [5])],
)
def test_it_is_started_again_and_remembered_unless_it_saved(
    before: tuple[int, ...], saved_in: int | None, after: list[int]
) -> None:
    decision = decided(before, saved_in=saved_in)

    assert decision.change.trigger is Trigger.NODE_LOST
    assert decision.change.set["node_recoveries"] == 1
    assert decision.memory is not None
    assert decision.memory["asks"] == after


def test_the_third_time_in_a_row_without_a_checkpoint_is_the_programs_own_failure() -> None:
    decision = decided((3, 4), saved_in=2)

    assert (decision.change.trigger, decision.change.reason) == (Trigger.STOP, Reason.USER_ERROR)
    assert decision.change.message == f"{ASKED}\nit did so 3 times in a row, and saved no checkpoint in between"


@pytest.mark.parametrize("end", [HUNG, CRASHED], ids=["hung", "crashed"])
@pytest.mark.parametrize(("before", "saved_in"), [((), None), ((3, 4), 4), ((4,), 2)])
def test_a_gang_that_hung_or_crashed_is_started_again(
    before: tuple[int, ...], saved_in: int | None, end: tuple[str, str, int | None]
) -> None:
    decision = decided(before, saved_in=saved_in, end=end)

    assert decision.change.trigger is Trigger.NODE_LOST
    assert decision.change.set == {"node_recoveries": 1}


@pytest.mark.parametrize("end", [HUNG, CRASHED], ids=["hung", "crashed"])
def test_a_training_that_does_so_three_times_in_a_row_without_a_checkpoint_has_failed(
    end: tuple[str, str, int | None],
) -> None:
    decision = decided((3, 4), end=end)

    assert (decision.change.trigger, decision.change.reason) == (Trigger.STOP, Reason.USER_ERROR)
    assert decision.change.message == f"{end[1]}\nit did so 3 times in a row, and saved no checkpoint in between"


def test_what_its_last_start_saved_is_waited_for_before_that_is_said() -> None:
    waits = decided((3, 4), drained=False, ended_s=10.0)
    no_longer = decided((3, 4), drained=False, ended_s=61.0)

    assert waits.only_waits
    assert waits.change.next_in_s is not None
    assert no_longer.change.reason is Reason.USER_ERROR


def test_a_document_that_restarts_after_the_programs_own_failures_does_so_after_this_one() -> None:
    decision = decided((3, 4), recovery={"user_restarts": 1})

    assert decision.change.trigger is Trigger.NODE_LOST
    assert decision.change.set == {"user_restarts": 1}
    assert decision.memory is not None
    assert decision.memory["asks"] == []
