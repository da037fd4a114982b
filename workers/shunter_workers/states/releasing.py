"""Stopping the ranks, collecting what they left, and letting every node go: for the end of a job, and for a pause."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from shunter_schemas.node_sync import Phase
from shunter_schemas.states import NodeState, Reason
from shunter_store.job.steps import Change
from shunter_store.node.ledger import NodeRow

from shunter_workers.decisions import Decision, Release, Settle, Tell, Write, wait
from shunter_workers.view import View, is_down

UPLOAD_WITHIN_S: Final = 600.0
"""For the last checkpoint, artifacts and logs, after the grace of the ranks."""
UPLOAD_OF_A_SUCCESS_WITHIN_S: Final = 86_400.0
"""What a training that is done leaves is what it was for: a large model, or an object store that is away for an hour,
costs no result, as long as the node answers."""
SILENCE_S: Final = 120.0
"""A node that does not answer for so long while it is being stopped is given up. Counted from the first step that
noticed: a service that was away itself must not hold that against its nodes."""
LOOK_AGAIN_S: Final = 5.0


def halt_and_release(view: View, now: datetime, reason: str) -> Decision:
    """The next thing between running nodes and nodes on their way out; waits where there is none."""
    memory = view.memory
    silent_since = _silent_since(view, now)
    given_up = silent_since is not None and now.timestamp() - silent_since >= SILENCE_S
    finished = [node for node in view.members if _is_finished(node, view, now) or given_up]
    unaware = [node for node in view.members if node not in finished and not _is_told(node)]
    writes: list[Write] = []
    if finished:
        ids = [node.id for node in finished]
        writes += [Tell(ids, Phase.RELEASE, _generation(finished), "over"), Release(ids, reason)]
    if unaware:
        writes.append(Tell([node.id for node in unaware], Phase.STOP, _generation(unaware), reason))
    changed = None if silent_since == memory.silent_since else memory.but(silent_since=silent_since)
    if writes or changed is not None:
        # Of nodes that were only told to stop nothing is to be seen at once: what they make of it wakes the job.
        goes_on = finished or any(node.state is NodeState.RELEASING for node in view.nodes)
        return Settle(Change(next_in_s=0.0 if goes_on else LOOK_AGAIN_S), writes, changed)
    return wait(LOOK_AGAIN_S if view.members else None)


def _is_finished(node: NodeRow, view: View, now: datetime) -> bool:
    """Nothing is left to collect there, or there is no hope of it."""
    if node.state is not NodeState.READY or not node.run_generation or is_down(node):
        return True
    if any(facts.node_id == node.id and facts.drained for facts in view.gang.nodes):
        return True
    within_s = UPLOAD_OF_A_SUCCESS_WITHIN_S if view.job.reason is Reason.DONE else UPLOAD_WITHIN_S
    return _is_told(node) and (now - node.desired_at).total_seconds() > view.stop_grace_s + within_s


def _is_told(node: NodeRow) -> bool:
    return node.desired_phase in (Phase.STOP, Phase.RELEASE)


def _generation(nodes: Sequence[NodeRow]) -> int:
    return max(node.run_generation or node.desired_generation for node in nodes)


def _silent_since(view: View, now: datetime) -> float | None:
    """Since when steps have found some member silent; None: all of them answer."""
    silent = any(
        node.run_generation and (node.last_sync_at is None or (now - node.last_sync_at).total_seconds() > SILENCE_S / 2)
        for node in view.members
    )
    if not silent:
        return None
    return view.memory.silent_since if view.memory.silent_since is not None else now.timestamp()
