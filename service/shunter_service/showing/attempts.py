"""The starts of a job's gang, put together from its moves and from what its nodes told. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from shunter_schemas.api import Attempt
from shunter_schemas.states import FailureClass, Reason, State
from shunter_store.job.events import TransitionRow
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.standings import Standing
from shunter_store.node.gang import End, EndRow

from shunter_service.showing.resuming import recovery_of

How = Literal["running", "done", "failed", "lost", "paused", "moved", "stopped"]

_RUNS: Final = frozenset({State.STARTING, State.RUNNING})
_BY_REASON: Final[dict[Reason, How]] = {
    Reason.DONE: "done",
    Reason.USER_ERROR: "failed",
    Reason.SETUP_FAILED: "failed",
    Reason.OUT_OF_MEMORY: "failed",
    Reason.RECOVERY_EXHAUSTED: "lost",
    Reason.LEASE_EXPIRED: "lost",
}
"""How a start ended by the reason that stopped the job; by any other one it was stopped."""

_ON_REQUEST: Final[dict[Trigger, How]] = {Trigger.PAUSE: "paused", Trigger.MOVE: "moved"}


def attempts(standing: Standing) -> Iterator[Attempt]:
    """Oldest first."""
    steps = {row.generation: row.step for row in standing.progress}
    for place, move in enumerate(standing.moves):
        if move.to_state is State.STARTING:
            yield _attempt(standing, move, standing.moves[place + 1 :], steps.get(move.generation))


def _attempt(
    standing: Standing, began: TransitionRow, following: Sequence[TransitionRow], last_step: int | None
) -> Attempt:
    number = began.generation
    up = next((move for move in following if move.to_state is State.RUNNING), None)
    left = next((move for move in following if move.from_state in _RUNS and move.to_state not in _RUNS), None)
    after = following[following.index(left) + 1] if left is not None and left is not following[-1] else None
    ends = [end for end in standing.ends if end.generation == number]
    how, reason, message = _end(standing, left, after, ends)
    version, spec = _document(standing, number)
    running_at = up.at if up is not None and (left is None or up.seq < left.seq) else None
    return Attempt(
        generation=number,
        started_at=began.at,
        running_at=running_at,
        ended_at=None if left is None else left.at,
        how=how,
        reason=reason,
        message=message,
        nodes=_nodes(standing, number, ends),
        last_step=last_step,
        recovery=recovery_of(standing, began, running_at),
        document=version,
        strategy=str(spec["strategy"]["kind"]) if "strategy" in spec else None,
    )


def _document(standing: Standing, generation: int) -> tuple[int, Mapping[str, Any]]:
    """The version that ran, and the document itself."""
    before = next((one for one in standing.documents if generation <= one.last_generation), None)
    if before is not None:
        return before.version, before.spec
    return standing.row.document_version, standing.row.spec


def _end(
    standing: Standing, left: TransitionRow | None, after: TransitionRow | None, ends: Sequence[EndRow]
) -> tuple[How, str | None, str | None]:
    if left is None:
        return "running", None, None
    if left.trigger in _ON_REQUEST:
        done = after is not None and after.reason is Reason.DONE
        return ("done", Reason.DONE, None) if done else (_ON_REQUEST[left.trigger], None, None)
    cause = _first_cause(ends)
    if left.trigger is Trigger.NODE_LOST:
        failed = cause is not None and cause.failure_class is FailureClass.USER
        how: How = "failed" if failed else "lost"
        return how, cause.reason if cause else "node_lost", cause.message if cause else None
    # A stop is the last that happens to a gang; what was a cancel may have turned out to be done.
    reason = standing.row.reason or left.reason
    how = _BY_REASON.get(reason, "stopped") if reason is not None else "stopped"
    return how, reason, standing.row.message if how in ("failed", "lost") else None


def _first_cause(ends: Sequence[EndRow]) -> EndRow | None:
    """Who failed for a reason of its own before those who only lost a peer; then the earlier by the nodes' clocks."""
    failed = [end for end in ends if end.ended is End.FAILED and end.ended_at is not None]
    return min(failed, key=lambda end: (end.reason == "peer_lost", end.ended_at), default=None)


def _nodes(standing: Standing, number: int, ends: Sequence[EndRow]) -> tuple[str, ...]:
    told = {end.node_id for end in ends}
    return tuple(node.token for node in standing.nodes if node.id in told or node.run_generation == number)
