"""`provisioning`: the gang is created and awaited as one unit, one call a step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from shunter_schemas.states import NodeState
from shunter_store.job.steps import Change
from shunter_store.node.ledger import NodeRow

from shunter_workers.decisions import Act, BeginCreate, Create, Decision, Search, Settle, wait
from shunter_workers.states.ends import ends_in_s, next_limit_s, stop_at_limit, stop_if_asked, stop_if_done
from shunter_workers.states.gang import (
    has_orders,
    intend_missing,
    is_ready,
    missing_ranks,
    order,
    start,
    takes_orders_early,
)
from shunter_workers.states.giving_up import failed_to_come, give_up
from shunter_workers.states.moving import move_while_provisioning
from shunter_workers.states.pausing import pause_if_asked
from shunter_workers.states.queued import queue_deadline, stop_if_waited_long_enough
from shunter_workers.states.refusing import refuse_unusable
from shunter_workers.states.requoting import price_now, refuse_dearer
from shunter_workers.view import View, after, is_down, is_queued, seconds_until, soonest

SLOTS_AGAIN_S: Final = 1.0


def decide(view: View, now: datetime) -> Decision:
    """The next thing that the gang lacks; or its start."""
    return (
        stop_if_done(view)
        or _acknowledge_start(view, now)
        or stop_if_asked(view)
        or stop_at_limit(view, now)
        or pause_if_asked(view)
        or move_while_provisioning(view)
        or refuse_unusable(view, now)
        or _give_up_if_broken(view, now)
        or _next_call(view, now)
        or _fill_gaps(view, now)
        or (start(view, now) if is_ready(view) else _await(view, now))
    )


def _acknowledge_start(view: View, now: datetime) -> Decision | None:
    """The gang runs already, since it had its orders before it was ready. Said before anything else is done about it,
    a cancel above all: from here on the ranks may have succeeded without anybody knowing."""
    return start(view, now) if view.members and is_ready(view) and has_orders(view) else None


def _give_up_if_broken(view: View, now: datetime) -> Decision | None:
    for node in view.members:
        if is_down(node):
            return failed_to_come(view, now, node)
        deadline = _deadline(node, view)
        if deadline is not None and now >= deadline:
            return give_up(view, now, [node], f"node {node.rank} is {node.state} and not ready in time")
    return None


def _await(view: View, now: datetime) -> Decision:
    """Nodes boot, or wait for capacity at their provider: as long as the job may wait in any queue."""
    told = _of_queue([node for node in view.members if is_queued(node)])
    if told is not None and (late := stop_if_waited_long_enough(view, now, told["detail"])) is not None:
        return late
    queue_ends_s = None if told is None else seconds_until(queue_deadline(view), now)
    next_in_s = soonest(_next_deadline_s(view, now), next_limit_s(view, now), queue_ends_s)
    return Settle(Change(next_in_s=next_in_s, set={} if told == view.job.waiting else {"waiting": told}))


def _of_queue(queued: Sequence[NodeRow]) -> dict[str, Any] | None:
    """What the job waits for at its provider, as users read it; None: nothing."""
    if not queued:
        return None
    words = sorted({node.condition_reason or "it does not say why" for node in queued})
    detail = f"{queued[0].instance} keeps {len(queued)} of the gang's nodes in its queue: {'; '.join(words)}"
    return {"reason": "queued_at_provider", "detail": detail, "tried": []}


def _next_call(view: View, now: datetime) -> Decision | None:
    for node in view.members:
        if node.state is NodeState.INTENDED:
            refused = refuse_dearer(view, now, node)
            if refused is not None:
                return refused
            capabilities = view.capabilities_of(node)
            deadline = after(now, capabilities.create_timeout_s + capabilities.visibility_delay_s)
            begin = BeginCreate(node.id, deadline, price_now(view))
            create = Create(node, ends_in_s(view, now))
            return Act(create, [begin, order(view, [node], now)] if takes_orders_early(view, node) else [begin])
        if node.handle is None:
            return Act(Search(node))  # a step died in the middle, or the answer was lost
    return None


def _fill_gaps(view: View, now: datetime) -> Decision | None:
    """New intents in the place of those whose create call was refused."""
    if not missing_ranks(view):
        return None
    if (rest_s := view.memory.rests_s(now)) > 0:
        return wait(rest_s)
    intend = intend_missing(view)
    return wait(SLOTS_AGAIN_S) if intend is None else Settle(Change(next_in_s=0.0), [intend])


def _deadline(node: NodeRow, view: View) -> datetime | None:
    """When to stop waiting for the node: for its appearance after a create call in doubt, else for its agent."""
    if node.state in (NodeState.INTENDED, NodeState.READY):
        return None  # a ready one without a handle is there for certain: scans find it
    if node.handle is None:
        return node.create_deadline_at
    if node.created_at is None or is_queued(node):
        return None  # the queue has no deadline but the job's own
    boots_since = max(node.created_at, node.queued_until or node.created_at)
    return after(boots_since, view.capabilities_of(node).readiness_deadline_s)


def _next_deadline_s(view: View, now: datetime) -> float | None:
    return soonest(*(seconds_until(_deadline(node, view), now) for node in view.members))
