"""What stops a job or sends it into recovery, from any state in which it has nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from shunter_planner.forecasts import STOP_TAKES_S
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import Reason
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change
from shunter_store.node.gang import End, Outcome, Verdict
from shunter_store.node.ledger import NodeRow

from shunter_workers.decisions import Decision, Limit, Release, Settle, Tell, stop, wait
from shunter_workers.states import asking, silence
from shunter_workers.states.avoiding import avoiding, look_first
from shunter_workers.states.shrinking import shrunk, smaller_plan, with_expectation
from shunter_workers.view import View, after, seconds_until, soonest

LONGEST_BACK_OFF_S: Final = 60.0
ALONE_LATER_S: Final = 5.0
"""So much later than the service itself a node stops for a limit: while it is not alone, the service says why."""
AHEAD_S: Final = 10.0
"""So much before the service a node may find that it has reached a limit: it counts from when it asked, and an answer
may take as long as this."""
LIMITS_DRIFT_S: Final = 1.0
"""So much the end of the money moves by itself from one look to the next."""
DISK_FULL: Final = "disk_full"
PEER_LOST: Final = "peer_lost"
CAUSE_WITHIN_S: Final = 3.0
"""So much later than the ranks that lost a peer the peer's own node may tell why."""
START_TAKES_S: Final = 600.0
"""What nodes on their own allow for the time before ranks first ran: only the service knows when that was."""

# What the agent calls the user's fault, where the job's reason has a word of its own for it.
_USER_REASONS: Final[Mapping[str, Reason]] = {
    "setup_failed": Reason.SETUP_FAILED,
    "out_of_memory": Reason.OUT_OF_MEMORY,
    "image_refused": Reason.INVALID,
    "no_docker": Reason.INVALID,
}


def stop_if_done(view: View) -> Decision | None:
    """Every rank was done: sticky, whatever is asked for meanwhile."""
    return stop(Reason.DONE, view.verdict.message or None) if view.verdict.outcome is Outcome.DONE else None


def stop_if_asked(view: View) -> Decision | None:
    """The user's cancel."""
    return stop(Reason.CANCELLED_BY_USER) if view.job.cancel_requested_at is not None else None


def stop_at_limit(view: View, now: datetime, ahead_s: float = 0.0) -> Settle | None:
    """The document's caps on time and money, and those that are reached within `ahead_s`."""
    deadline = duration_deadline(view)
    if deadline is not None and after(now, ahead_s) >= deadline:
        return stop(Reason.DURATION_EXCEEDED, f"limits.max_duration_s is {view.document.limits.max_duration_s:g}")
    left_s = _affordable_s(view)
    if budget_is_spent(view) or (left_s is not None and left_s <= ahead_s):
        limit = view.document.limits.max_cost_usd
        return stop(Reason.BUDGET_EXHAUSTED, f"{view.cost_usd:.2f} USD of {limit:.2f} (limits.max_cost_usd) are spent")
    return None


def budget_is_spent(view: View) -> bool:
    """Whether the job has cost all that it may; also where nothing of it bills at this moment."""
    limit = view.document.limits.max_cost_usd
    return limit is not None and view.cost_usd >= limit


def stop_if_too_dear(view: View, usd_per_hour: float) -> Decision | None:
    """What is left of the budget pays for no more than the stop of such a gang: it is not even begun."""
    limit = view.document.limits.max_cost_usd
    if limit is None or usd_per_hour <= 0:
        return None
    left_usd = limit - view.cost_usd
    if left_usd / usd_per_hour * 3600 > STOP_TAKES_S:
        return None
    told = f"{view.cost_usd:.2f} USD of {limit:.2f} (limits.max_cost_usd) are spent"
    return stop(Reason.BUDGET_EXHAUSTED, f"{told}; the rest does not pay for {usd_per_hour:.2f} USD an hour")


def duration_deadline(view: View) -> datetime | None:
    """When `max_duration_s` is over; None: no limit, or the job has not run yet. Pauses do not count."""
    limit, started_at = view.document.limits.max_duration_s, view.job.started_at
    return None if limit is None or started_at is None else after(started_at, limit + view.memory.paused_s)


def stop_by(view: View, now: datetime) -> datetime | None:
    """When nodes stop by themselves if nobody tells them anything any more: the caps hold offline too."""
    limit, deadline = view.document.limits.max_duration_s, duration_deadline(view)
    if limit is not None and deadline is None:
        told_at = max((node.desired_at for node in view.members if node.desired_phase == Phase.RUN), default=now)
        deadline = after(told_at, limit + START_TAKES_S)
    left_s = soonest(seconds_until(deadline, now), _affordable_s(view))
    return None if left_s is None else after(now, left_s + ALONE_LATER_S)


def ends_in_s(view: View, now: datetime) -> float | None:
    """After this a node that is made now is of no use, even if neither the service nor its agent lives to end it.

    Twice what the limits leave, and a day more: limits may be raised, and the providers' own ends may not.
    """
    left_s = seconds_until(stop_by(view, now), now)
    return None if left_s is None else 2.0 * left_s + 86_400.0


def new_limits(view: View, now: datetime) -> Sequence[Limit]:
    """For nodes that do not carry the limits as they are now: they may be changed, and count from the first run."""
    limit = stop_by(view, now)
    stale = [node.id for node in view.members if node.desired_phase == Phase.RUN and _differ(node.stop_at, limit)]
    return [Limit(stale, limit)] if stale else []


def hold_to_limits(view: View, now: datetime) -> Decision | None:
    """Running nodes carry the limits as they are now."""
    limits = new_limits(view, now)
    return Settle(Change(next_in_s=next_limit_s(view, now)), limits) if limits else None


def next_limit_s(view: View, now: datetime) -> float | None:
    """How long until a cap may be reached."""
    return soonest(seconds_until(duration_deadline(view), now), _affordable_s(view))


def judge_gang(view: View, now: datetime) -> Decision | None:
    """What the verdict over the gang asks for when it failed or stopped; None: it goes on."""
    verdict = view.verdict
    if verdict.outcome is Outcome.USER_FAILURE:
        return _user_failure(view, verdict, now)
    full = _without_room(view, verdict)
    if full:
        return _lose_nodes(view, now, full, DISK_FULL, f"full: {verdict.message}")
    if verdict.outcome is Outcome.NODE_FAILURE:
        told = _await_cause(view, now, verdict) or _start_again(view, now, verdict)
        return told or lose(view, now, verdict.reason, verdict.message)
    if verdict.outcome is Outcome.STOPPED:
        # Nobody asked for it: the node was alone until its lease ended, or reached the limit that it carries.
        return lose(view, now, verdict.reason or "stopped", verdict.message)
    return None


def lose_useless(view: View, now: datetime) -> Decision | None:
    """Nodes that are there, as their providers see it, and no good any more."""
    # Their leases are over, and the grace of their ranks: what ran there has ended. Silence alone says less.
    mute = silence.mute(view, now)
    silent = [node for node in view.members if silence.has_lasted(view, mute, node, now)]
    if silent:
        return _lose_nodes(view, now, silent, "node_silent", "silent beyond its lease, so it has stopped by itself")
    if mute.keys() - view.memory.mute.keys() or any(view.memory.mute[id_] != found for id_, found in mute.items()):
        return Settle(Change(next_in_s=0.0), memory=view.memory.but(mute=mute))
    stuck = [node for node in view.members if node.run_generation and is_stuck(node)]
    return _lose_nodes(view, now, stuck, DISK_FULL, f"stuck: {is_stuck(stuck[0])}") if stuck else None


def is_stuck(node: NodeRow) -> str:
    """What keeps the node from writing down what happens; empty while nothing does."""
    return str(node.status.get("stuck") or "")


def _lose_nodes(view: View, now: datetime, nodes: Sequence[NodeRow], reason: str, what: str) -> Decision:
    """Recover without these nodes, which no provider calls lost."""
    names = ", ".join(str(node.rank) for node in nodes)
    decision = lose(view, now, reason, f"node {names} is {what}")
    if decision.change.trigger is not Trigger.NODE_LOST:
        return decision
    gone = [node.id for node in nodes]
    kept = [node.id for node in view.members if node.run_generation and node not in nodes and node not in view.lost]
    told = [Tell(kept, Phase.STOP, view.job.generation, "recovering")] if kept else []
    others = [write for write in decision.writes if not isinstance(write, Tell)]
    memory = {**(decision.memory or view.memory.as_json()), "avoid": avoiding(view, now, nodes, what)}
    writes = [Release(gone, f"lost: {reason}"), *others, *told]
    return look_first(nodes) or replace(decision, writes=writes, memory=memory)


def lose(view: View, now: datetime, reason: str, message: str) -> Settle:
    """A node is lost or a rank failed for no fault of the user's: recover, as long as the budget lasts.

    Not at a limit, to which nodes that stopped by themselves may have come a little before.
    """
    alone = any(part.ended is End.STOPPED for part in view.gang.members)
    if (over := stop_at_limit(view, now, AHEAD_S if alone else 0.0)) is not None:
        return over
    spent, budget = view.job.node_recoveries, view.document.recovery.node_recoveries
    if spent >= budget:
        told = f"recovery.node_recoveries ({budget}) is spent; the last cause was {reason}: {message}"
        return stop(Reason.RECOVERY_EXHAUSTED, told)
    return _recover(view, now, {"node_recoveries": spent + 1}, reason, message, times=spent)


def stop_for_user_failure(view: View) -> Decision | None:
    """The end of a program that failed; None: the document lets it start once more."""
    if view.job.user_restarts < view.document.recovery.user_restarts or smaller_plan(view) is not None:
        return None
    message = with_expectation(view.verdict.message, view)
    return stop(_USER_REASONS.get(view.verdict.reason, Reason.USER_ERROR), message)


def _start_again(view: View, now: datetime, verdict: Verdict) -> Decision | None:
    """What a program asks for that ends with exit code 75, unless it has asked in vain; None: it did not."""
    if not asking.asks(view):
        return None
    asks = asking.in_vain(view)
    if len(asks) < asking.IN_VAIN:
        decision = lose(view, now, verdict.reason, verdict.message)
        return replace(decision, memory={**(decision.memory or view.memory.as_json()), "asks": asks})
    if asking.still_stores(view, now):
        return wait(soonest(asking.STORED_WITHIN_S, next_limit_s(view, now)))
    told = f"{verdict.message}\nit did so {len(asks)} times in a row, and saved no checkpoint in between"
    spent = view.job.user_restarts
    if spent >= view.document.recovery.user_restarts:
        return stop(Reason.USER_ERROR, told)
    decision = _recover(view, now, {"user_restarts": spent + 1}, str(Reason.USER_ERROR), told, times=spent)
    return replace(decision, memory={**(decision.memory or view.memory.as_json()), "asks": []})


def _await_cause(view: View, now: datetime, verdict: Verdict) -> Decision | None:
    """A rank failed for the loss of another one: what ended that one may be told a moment later, and be the user's
    fault, or a node's that must not be kept. None: all is told, or long enough waited for."""
    if verdict.reason != PEER_LOST or view.lost or all(node.ended is not None for node in view.gang.members):
        return None
    since = view.memory.peer_lost_at
    if since is None:
        return Settle(Change(next_in_s=CAUSE_WITHIN_S), memory=view.memory.but(peer_lost_at=now.timestamp()))
    left_s = since + CAUSE_WITHIN_S - now.timestamp()
    return wait(left_s) if left_s > 0 else None


def _without_room(view: View, verdict: Verdict) -> list[NodeRow]:
    """The node whose disk is full, where the verdict says that one is: that of the rank to blame."""
    if verdict.reason != DISK_FULL:
        return []
    if verdict.rank is None:
        return [node for node in view.members if node.id == verdict.node_id]
    return [node for node in view.members if node.rank == verdict.rank // view.plan.ranks_per_node]


def _user_failure(view: View, verdict: Verdict, now: datetime) -> Decision:
    spent, smaller = view.job.user_restarts, smaller_plan(view)
    if smaller is not None:
        return shrunk(_recover(view, now, {}, verdict.reason, verdict.message, times=0), view, smaller)
    return stop_for_user_failure(view) or _recover(
        view, now, {"user_restarts": spent + 1}, verdict.reason, verdict.message, times=spent
    )


def _recover(view: View, now: datetime, counted: Mapping[str, Any], reason: str, message: str, *, times: int) -> Settle:
    back_off_s = min(LONGEST_BACK_OFF_S, 2.0**times)
    lost = [node.id for node in view.lost]
    # Told here already, so that the live nodes save and upload while the back-off runs.
    kept = [node.id for node in view.members if node.run_generation and node.id not in lost]
    writes: Sequence[Any] = [
        *([Release(lost, f"lost: {reason}")] if lost else []),
        *([Tell(kept, Phase.STOP, view.job.generation, "recovering")] if kept else []),
    ]
    change = Change(
        trigger=Trigger.NODE_LOST,
        next_in_s=0.0,
        set=dict(counted),
        events=[("job.recovering", {"reason": reason, "message": message, "back_off_s": back_off_s, **counted})],
    )
    memory = view.memory.but(not_before=now.timestamp() + back_off_s, create_failures=0, peer_lost_at=None)
    return Settle(change, writes, memory)


def _differ(one: datetime | None, other: datetime | None) -> bool:
    if one is None or other is None:
        return one is not other
    return abs((one - other).total_seconds()) > LIMITS_DRIFT_S


def _affordable_s(view: View) -> float | None:
    """How long the budget lasts at the present rate, less the time of an orderly stop."""
    limit = view.document.limits.max_cost_usd
    rate = sum(node.billed_usd_per_hour for node in view.nodes)
    if limit is None or rate <= 0:
        return None
    return (limit - view.cost_usd) / rate * 3600 - STOP_TAKES_S
