"""How a gang came back after a loss, phase by phase. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from shunter_schemas.api import RecoveryPhase, RecoveryTimes
from shunter_schemas.states import State
from shunter_store.job.events import TransitionRow
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.standings import Standing
from shunter_store.node.gang import End, EndRow
from shunter_store.node.ledger import NodeRow

_ON_REQUEST: Final = frozenset({Trigger.PAUSE, Trigger.MOVE})
"""Who asked for it waited for something else than a recovery."""


def recovery_of(standing: Standing, began: TransitionRow, running_at: datetime | None) -> RecoveryTimes | None:
    """What lay between a loss and the first step of the start that followed; None: no loss came before it.

    Args:
        began: the move by which the gang was told to run.
        running_at: when all its ranks were up, if they were.
    """
    since = list(_since_the_last_start(standing.moves, began))
    decided = next((move for move in since if move.trigger is Trigger.NODE_LOST), None)
    if decided is None or any(move.trigger in _ON_REQUEST for move in since):
        return None
    lost_at = min(_lost_at(standing, decided), decided.at)
    marks = [("noticed", decided.at), *_marks(standing, decided, began, running_at)]
    phases, at = [], lost_at
    for name, until in marks:
        phases.append(RecoveryPhase(name=name, seconds=round(max(0.0, (until - at).total_seconds()), 3)))
        at = max(at, until)
    over = marks[-1][0] == "first_step"
    return RecoveryTimes(
        lost_at=lost_at,
        resumed_at=at if over else None,
        seconds=round((at - lost_at).total_seconds(), 3),
        phases=tuple(phases),
    )


def _since_the_last_start(moves: Sequence[TransitionRow], began: TransitionRow) -> Sequence[TransitionRow]:
    """The moves between the start before this one and this one."""
    before = moves[: moves.index(began)]
    starts = [place for place, move in enumerate(before) if move.to_state is State.STARTING]
    return before[starts[-1] + 1 :] if starts else before


def _marks(
    standing: Standing, decided: TransitionRow, began: TransitionRow, running_at: datetime | None
) -> Iterator[tuple[str, datetime]]:
    """By name, when each phase after the decision was over, as far as they are."""
    new = [node for node in standing.nodes if decided.at <= node.intended_at <= began.at and _ran(node, began)]
    if new:
        yield "stopped", min(node.intended_at for node in new)
        yield "provisioned", max(node.created_at or node.intended_at for node in new)
        yield "bootstrapped", max(node.ready_at or began.at for node in new)
        yield "met", began.at
    else:
        yield "stopped", began.at
    if running_at is None:
        return
    yield "ranks_up", running_at
    first = standing.first_points.get(began.generation)
    if first is None:
        return
    stepped_at = max(running_at, datetime.fromtimestamp(first.at, UTC))
    if first.load_s is not None:
        yield "loaded", min(stepped_at, running_at + timedelta(seconds=first.load_s))
    yield "first_step", stepped_at


def _ran(node: NodeRow, began: TransitionRow) -> bool:
    return node.run_generation >= began.generation


def _lost_at(standing: Standing, decided: TransitionRow) -> datetime:
    """When the first rank failed; of a node that went without a word, when it was heard last."""
    ends = [end for end in standing.ends if end.generation == decided.generation]
    failed = [end.ended_at for end in ends if end.ended is End.FAILED and end.ended_at is not None]
    silent = [node.last_sync_at for node in _let_go(standing, decided, ends) if node.last_sync_at is not None]
    return min([*failed, *silent], default=decided.at)


def _let_go(standing: Standing, decided: TransitionRow, ends: Sequence[EndRow]) -> list[NodeRow]:
    """Nodes that were given up and had not told how their ranks ended."""
    told = {end.node_id for end in ends if end.ended is not None}
    return [
        node
        for node in standing.nodes
        if node.run_generation == decided.generation and node.id not in told and node.releasing_at is not None
    ]
