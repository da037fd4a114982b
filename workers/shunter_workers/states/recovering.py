"""`recovering`: live nodes are kept, lost ones replaced; then everything starts again from the last checkpoint.

Or on request: nodes are let go, and the job rests; or it goes on under a changed document.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from shunter_schemas.node_sync import Phase
from shunter_schemas.states import NodeState
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change
from shunter_store.node.ledger import NodeRow

from shunter_workers.decisions import Decision, Release, Settle, Tell, wait
from shunter_workers.states.ends import is_stuck, next_limit_s, stop_at_limit, stop_if_asked, stop_if_done
from shunter_workers.states.fewer import (
    be_patient,
    go_on_otherwise,
    is_refused,
    patience_left_s,
    smaller_document,
)
from shunter_workers.states.gang import intend_missing, is_ready, missing_ranks, start
from shunter_workers.states.moving import clear_for_move, move_kept
from shunter_workers.states.pausing import come_to_rest, judge_halting
from shunter_workers.states.queued import place_gang
from shunter_workers.states.refusing import refuse_unusable
from shunter_workers.view import View, after, seconds_until, soonest

DRAIN_WITHIN_S: Final = 60.0
"""How long a kept node may take to stop its ranks and upload what they left. After that it is told to run anyway: an
agent ends the old generation before it begins a new one."""
SLOTS_AGAIN_S: Final = 1.0
REFUSED_AGAIN_S: Final = 5.0


def decide(view: View, now: datetime) -> Decision:
    """The next thing between a lost gang and a whole one."""
    return (
        stop_if_done(view)
        or judge_halting(view)
        or stop_if_asked(view)
        or stop_at_limit(view, now)
        or come_to_rest(view, now)
        or clear_for_move(view, now)
        or refuse_unusable(view, now)
        or _release_lost(view)
        or _halt_kept(view)
        or _wait_for_kept(view, now)
        or move_kept(view)
        or _replace(view, now)
        or (start(view, now) if is_ready(view) else wait(next_limit_s(view, now)))
    )


def _release_lost(view: View) -> Decision | None:
    lost = [node.id for node in view.members if node in view.lost or not _is_of_use(node)]
    return Settle(Change(next_in_s=0.0), [Release(lost, "lost")]) if lost else None


def _is_of_use(node: NodeRow) -> bool:
    """Whether it came as far as to be worth keeping, and has room to go on."""
    return node.state is NodeState.READY and not is_stuck(node)


def _halt_kept(view: View) -> Decision | None:
    """The old generation ends on the nodes that live."""
    running = [node.id for node in view.members if node.desired_phase == Phase.RUN]
    if not running:
        return None
    return Settle(Change(next_in_s=0.0), [Tell(running, Phase.STOP, view.job.generation, "recovering")])


def _wait_for_kept(view: View, now: datetime) -> Decision | None:
    """Back-off, and what the kept nodes still upload: the last checkpoint of the old generation may be among it."""
    busy_s = max((_drain_s(node, view, now) for node in view.members), default=0.0)
    delay_s = max(busy_s, view.memory.rests_s(now))
    return wait(soonest(delay_s, next_limit_s(view, now))) if delay_s > 0 else None


def _drain_s(node: NodeRow, view: View, now: datetime) -> float:
    drained = any(facts.node_id == node.id and facts.drained for facts in view.gang.nodes)
    if drained or not node.run_generation or node.desired_phase == Phase.MUSTER:  # which it is told only after that
        return 0.0
    return seconds_until(after(node.desired_at, DRAIN_WITHIN_S), now) or 0.0


def _replace(view: View, now: datetime) -> Decision | None:
    """New nodes for the lost ones; where they are not to be had, fewer; where none is left, whatever is allowed."""
    if not view.members:
        return place_gang(view, now)
    if not missing_ranks(view):
        return None
    intend, refused = intend_missing(view), is_refused(view, now)
    may_wait = intend is None or (refused and smaller_document(view.document) is not None)
    if may_wait and patience_left_s(view, now) > 0:
        again_in_s = SLOTS_AGAIN_S if intend is None else REFUSED_AGAIN_S
        return Settle(Change(next_in_s=again_in_s), memory=be_patient(view, now))
    otherwise = go_on_otherwise(view, now) if intend is None or refused else None
    if otherwise is not None:
        return otherwise
    return wait(SLOTS_AGAIN_S) if intend is None else Settle(Change(trigger=Trigger.PLANNED, next_in_s=0.0), [intend])
