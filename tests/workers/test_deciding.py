"""What a step decides, for every state and situation. Pure: made-up rows in, a few words out."""

from __future__ import annotations

import pytest
from shunter_schemas.states import LIVE_STATES, NodeState, State
from shunter_store.job.lifecycle import Trigger
from shunter_workers.deciding import BY_STATE, decide
from shunter_workers.decisions import Settle
from shunter_workers.view import View
from support.situations_from_running import CANCELLED, RECOVERING, RUNNING, STOPPING
from support.situations_of_silence import SILENT_BEYOND_ITS_LEASE
from support.situations_until_running import PROVISIONING, QUEUED, STARTING
from support.views import (
    NOW,
    brief,
    job,
    node,
    view,
)

TABLES = {
    State.QUEUED: QUEUED,
    State.PROVISIONING: PROVISIONING,
    State.STARTING: STARTING,
    State.RUNNING: [*RUNNING, *SILENT_BEYOND_ITS_LEASE],
    State.RECOVERING: RECOVERING,
    State.STOPPING: STOPPING,
}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(seen, words, id=f"{state}: {title}")
        for state, rows in TABLES.items()
        for title, seen, words in rows
    ],
)
def test_a_step_decides(seen: View, words: list[str]) -> None:
    assert brief(decide(seen, NOW)) == words


def test_every_state_that_lives_has_its_decisions() -> None:
    assert set(BY_STATE) == set(LIVE_STATES) == set(TABLES)


def test_whoever_moves_a_job_on_looks_again_in_its_new_state() -> None:
    decisions = [decide(seen, NOW) for rows in TABLES.values() for _, seen, _ in rows]

    moves = [entry.change for entry in decisions if isinstance(entry, Settle) and entry.change.trigger]

    assert moves
    for change in moves:
        # What the new state waits for may have come already, and then nothing would wake the job. (What `running` looks
        # at `starting` has looked at.)
        assert change.trigger in (Trigger.NODES_GONE, Trigger.TRAINER_UP) or change.next_in_s is not None


def test_a_cancel_stops_a_job_in_every_state_at_once() -> None:
    live, half_made = LIVE_STATES - {State.STOPPING}, node(NodeState.BOOTING)

    decisions = {state: brief(decide(view(job(state, **CANCELLED), half_made), NOW)) for state in live}

    assert decisions == {state: ["stop cancelled_by_user"] for state in live}
