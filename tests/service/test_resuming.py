"""How a gang came back after a loss, as the API shows it. Pure: rows in, phases out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from shunter_schemas.api import RecoveryTimes
from shunter_schemas.states import FailureClass, NodeState, State
from shunter_service.showing.attempts import attempts
from shunter_store.job.events import TransitionRow
from shunter_store.job.lifecycle import Trigger, follow
from shunter_store.job.standings import Standing
from shunter_store.node.gang import End, EndRow
from shunter_store.node.ledger import NodeRow
from shunter_store.report.first_points import FirstPoint
from support.views import job, node

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
KEPT = node(NodeState.READY, 0, run_generation=2, intended_at=START)
UP = [(1, Trigger.PLANNED), (2, Trigger.NODES_READY), (10, Trigger.TRAINER_UP)]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def path(*triggers: tuple[float, Trigger]) -> list[TransitionRow]:
    """The moves that these triggers make, each so many seconds after the beginning."""
    state, generation, rows = State.QUEUED, 0, []
    for seq, (seconds, trigger) in enumerate(triggers, 1):
        target, _ = follow(state, trigger, None)
        generation += target is State.STARTING
        rows.append(TransitionRow("job_1", seq, at(seconds), trigger, state, target, None, max(generation, 1)))
        state = target
    return rows


def failed(seconds: float, node_id: str = "node_0") -> EndRow:
    return EndRow(1, node_id, End.FAILED, at(seconds), 0, FailureClass.NODE, "signal", "", None)


def made(**times_s: float) -> NodeRow:
    """A node that was ordered for the second start."""
    times = {name: at(seconds) for name, seconds in times_s.items()}
    return node(NodeState.READY, 1, id="node_9", run_generation=2, **times)


def recovery(
    moves: list[TransitionRow], *nodes: NodeRow, ends: tuple[EndRow, ...] = (), **kept: Any
) -> RecoveryTimes | None:
    standing = Standing(job(moves[-1].to_state), nodes=nodes, moves=moves, ends=ends, **kept)
    return list(attempts(standing))[-1].recovery


def phases(found: RecoveryTimes | None) -> dict[str, float]:
    assert found is not None
    return {phase.name: phase.seconds for phase in found.phases}


def test_each_phase_from_the_loss_of_a_node_to_the_first_step_is_told() -> None:
    lost = (60, Trigger.NODE_LOST), (63, Trigger.PLANNED), (90, Trigger.NODES_READY), (95, Trigger.TRAINER_UP)
    new = made(intended_at=63, created_at=70, ready_at=88)
    point = FirstPoint(step=41, at=at(100).timestamp(), load_s=2.0)

    found = recovery(path(*UP, *lost), KEPT, new, ends=(failed(58.5),), first_points={2: point})

    assert phases(found) == {
        "noticed": 1.5,
        "stopped": 3.0,
        "provisioned": 7.0,
        "bootstrapped": 18.0,
        "met": 2.0,
        "ranks_up": 5.0,
        "loaded": 2.0,
        "first_step": 3.0,
    }
    assert found is not None
    assert (found.lost_at, found.resumed_at, found.seconds) == (at(58.5), at(100), 41.5)


def test_where_every_node_is_kept_nothing_is_provisioned() -> None:
    lost = (60, Trigger.NODE_LOST), (64, Trigger.NODES_READY), (67, Trigger.TRAINER_UP)

    found = recovery(path(*UP, *lost), KEPT, ends=(failed(60),))

    assert phases(found) == {"noticed": 0.0, "stopped": 4.0, "ranks_up": 3.0}
    assert found is not None
    assert (found.resumed_at, found.seconds) == (None, 7.0)


def test_a_node_that_went_without_a_word_was_lost_when_it_was_heard_last() -> None:
    lost = (60, Trigger.NODE_LOST), (64, Trigger.NODES_READY)
    silent = node(NodeState.GONE, 1, run_generation=1, last_sync_at=at(20), releasing_at=at(60))

    found = recovery(path(*UP, *lost), KEPT, silent)

    assert found is not None
    assert (found.lost_at, phases(found)) == (at(20), {"noticed": 40.0, "stopped": 4.0})


def test_a_loss_on_the_way_back_belongs_to_the_same_recovery() -> None:
    lost = (60, Trigger.NODE_LOST), (63, Trigger.PLANNED), (80, Trigger.NODE_LOST), (99, Trigger.NODES_READY)

    found = recovery(path(*UP, *lost), KEPT, ends=(failed(60),))

    assert found is not None
    assert found.lost_at == at(60)
    assert phases(found) == {"noticed": 0.0, "stopped": 39.0}


def test_clocks_that_are_wrong_make_no_phase_negative() -> None:
    lost = (60, Trigger.NODE_LOST), (64, Trigger.NODES_READY), (67, Trigger.TRAINER_UP)
    point = FirstPoint(step=41, at=at(-3600).timestamp(), load_s=500.0)

    found = recovery(path(*UP, *lost), KEPT, ends=(failed(4000),), first_points={2: point})

    assert phases(found) == {"noticed": 0.0, "stopped": 4.0, "ranks_up": 3.0, "loaded": 0.0, "first_step": 0.0}


def test_a_start_that_followed_no_loss_has_no_recovery() -> None:
    paused = (60, Trigger.PAUSE), (61, Trigger.PAUSED), (70, Trigger.PLANNED), (71, Trigger.NODES_READY)

    assert recovery(path(*UP), replace(KEPT, run_generation=1)) is None
    assert recovery(path(*UP, *paused), KEPT) is None
