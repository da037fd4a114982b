"""`queued`: waiting for a plan, a slot, capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from shunter_planner import Plan, Refusal, plan
from shunter_planner.values import as_json
from shunter_schemas.states import Reason
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change

from shunter_workers.choosing import slots_on_hosts
from shunter_workers.decisions import Decision, Intend, Place, Settle, WakeWaiting, Write, stop, wait
from shunter_workers.states.ends import stop_at_limit, stop_if_asked, stop_if_done, stop_if_too_dear
from shunter_workers.states.fewer import be_patient, patience_left_s, resized, smaller_document
from shunter_workers.states.moving import move_in_queue
from shunter_workers.states.pausing import rest
from shunter_workers.states.reckoning import facts_of
from shunter_workers.view import View, after, resource_name, seconds_until, soonest

FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 15.0
_SHOWN: Final = 20
"""Offers that `waiting` tells of."""


def decide(view: View, now: datetime) -> Decision:
    """Plan, and intend the whole gang; or say what is waited for."""
    own = (
        stop_if_done(view)
        or stop_if_asked(view)
        or move_in_queue(view)
        or rest(view, now)
        or stop_at_limit(view, now)
        or stop_if_waited_long_enough(view, now, (view.job.waiting or {}).get("detail"))
    )
    if own is not None:
        return own
    if (rest_s := view.memory.rests_s(now)) > 0:
        return wait(rest_s)
    return place_gang(view, now)


def place_gang(view: View, now: datetime) -> Decision:
    """A new plan for the whole gang; also for a gang that lost every node."""
    market = view.market
    answer = plan(view.document, market.candidates, facts_of(view, now), view.history)
    if isinstance(answer, Refusal) and not answer.final:
        answer = _with_fewer(view, now) or answer
    if isinstance(answer, Refusal):
        if answer.final:
            return stop(answer.reason, answer.detail)
        waiting = _wait_for(view, answer, now)
        return replace(waiting, memory=be_patient(view, now)) if view.memory.started else waiting
    if (too_dear := stop_if_too_dear(view, answer.usd_per_hour)) is not None:
        return too_dear
    ahead = market.ahead.get(resource_name(answer.instance, answer.slot_kind), ())
    if answer.shared_host and ahead:
        return _wait_in_line(view, answer, len(ahead), now)
    generation = view.memory.ordered_generation + 1
    places = [
        Place(rank, slots) for rank, slots in enumerate(choose_slots(view, answer, list(range(answer.num_nodes))))
    ]
    change = Change(
        trigger=Trigger.PLANNED,
        next_in_s=0.0,
        set={"plan": as_json(answer), "provider": answer.instance, "generation": generation, "waiting": None},
        events=[
            ("job.planned", {"provider": answer.instance, "instance_type": answer.offer.instance_type}),
            *(resized(view, answer) if view.memory.started else []),
        ],
    )
    memory = view.memory.but(ordered_generation=generation, create_failures=0)
    return Settle(change, [Intend(answer, places, generation)], memory)


def _with_fewer(view: View, now: datetime) -> Plan | None:
    """A smaller gang, for a job that ran already, may go on so, and has waited for all of its GPUs for a while."""
    smaller = smaller_document(view.document) if view.memory.started else None
    if smaller is None or patience_left_s(view, now) > 0:
        return None
    answer = plan(smaller, view.market.candidates, facts_of(view, now), view.history)
    return answer if isinstance(answer, Plan) else None


def choose_slots(view: View, chosen: Plan, ranks: Sequence[int]) -> list[tuple[int, ...]]:
    """The slots of each of these nodes: the first that are free. Empty tuples where hosts are not shared."""
    if not chosen.shared_host:
        return [() for _ in ranks]
    free = view.market.free.get((chosen.instance, chosen.offer.instance_type), ())
    if chosen.offer.host_stride:
        return slots_on_hosts(chosen, free, ranks, [node.slot_indices for node in view.members])
    size = chosen.ranks_per_node
    return [tuple(free[place * size : (place + 1) * size]) for place in range(len(ranks))]


def stop_if_waited_long_enough(view: View, now: datetime, last_said: str | None) -> Decision | None:
    """The end of a job that never ran, and waited for its nodes as long as its document allows."""
    deadline = queue_deadline(view)
    if deadline is None or now < deadline:
        return None
    detail = f"; the last round said: {last_said}" if last_said else ""
    limit_s = view.document.limits.max_queue_s
    return stop(Reason.QUEUE_TIMEOUT, f"could not be placed within limits.max_queue_s ({limit_s:g}){detail}")


def queue_deadline(view: View) -> datetime | None:
    """When it has waited long enough; None: it ran before, or may wait for ever."""
    limit = view.document.limits.max_queue_s
    if limit is None or view.job.started_at is not None:
        return None
    return after(view.job.created_at, limit + view.memory.paused_s)


def retry_in_s(view: View, now: datetime, ahead: int = 0) -> float:
    """Longer the longer the job waits already; far back in a line it is woken anyway."""
    waited_s = (now - view.job.created_at).total_seconds()
    return max(FIRST_RETRY_S, min(LONGEST_RETRY_S, waited_s / 4), min(60.0, ahead / 4))


def _wait_for(view: View, refusal: Refusal, now: datetime) -> Settle:
    tried = [
        {"instance": entry.instance, "instance_type": entry.instance_type, "region": entry.region}
        | {"reason": entry.reason, "detail": entry.detail}
        for entry in refusal.rejected[:_SHOWN]
    ]
    taken = next((entry for entry in refusal.rejected if entry.reason == "slots_taken"), None)
    if taken is None:
        return _waiting(view, now, {"reason": str(refusal.reason), "detail": refusal.detail, "tried": tried})
    resource = resource_name(taken.instance, _slot_kind(view))
    told = {"reason": "slots_taken", "detail": refusal.detail, "tried": tried, **_line(view, resource)}
    return _waiting(view, now, told)


def _wait_in_line(view: View, answer: Plan, ahead: int, now: datetime) -> Settle:
    """It would fit, but others that wait for the same come first; they are woken to take their turn."""
    told = {
        "reason": "slots_taken",
        "detail": f"{ahead} jobs that wait for {answer.instance} come first",
        "tried": [],
        **_line(view, resource_name(answer.instance, answer.slot_kind)),
    }
    return _waiting(view, now, told, [WakeWaiting(answer.instance, answer.slot_kind, answer.world_size)])


def _line(view: View, resource: str) -> dict[str, Any]:
    market = view.market
    return {
        "resource": resource,
        "position": len(market.ahead.get(resource, ())) + 1,
        "blocked_by": list(market.holders.get(resource, ())),
    }


def _waiting(view: View, now: datetime, told: dict[str, Any], writes: Sequence[Write] = ()) -> Settle:
    delay_s = soonest(retry_in_s(view, now, told.get("position", 1)), seconds_until(queue_deadline(view), now))
    before = view.job.waiting or {}
    same = all(before.get(name) == told.get(name) for name in ("reason", "detail", "resource", "position"))
    # Only news is written: a revision with every try would wake everybody who follows the job.
    return Settle(Change(next_in_s=delay_s, set={} if same else {"waiting": told}), writes)


def _slot_kind(view: View) -> str:
    return "cpu" if view.document.resources.cpu_processes is not None else "gpu"
