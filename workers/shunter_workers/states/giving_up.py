"""What becomes of an attempt that failed to get its nodes, by whose fault it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from shunter_providers.advice import with_advice
from shunter_providers.contract import Fault, ProviderError, Scope
from shunter_schemas.states import Reason
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change
from shunter_store.node.ledger import NodeRow

from shunter_workers.decisions import Close, Decision, MarkUnknown, Release, Settle, Write, stop
from shunter_workers.states.avoiding import avoiding, look_first
from shunter_workers.states.ends import lose
from shunter_workers.view import View, is_down

MOST_FAILURES: Final = 3
"""Create calls that fail in a row for passing reasons before the offer counts as unusable."""
_NOT_READY_BLOCK_S: Final = 15.0
_BAD_OFFER_BLOCK_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class _Blocking:
    """How long a fault keeps the job away from what it concerns, and how the job ends if nothing else is left."""

    reason: Reason
    for_s: float


_BLOCKS: Final[Mapping[Fault, _Blocking]] = {
    Fault.NO_CAPACITY: _Blocking(Reason.NO_CAPACITY, 120.0),
    Fault.QUOTA: _Blocking(Reason.QUOTA, 600.0),
    Fault.AUTH: _Blocking(Reason.PROVIDER_AUTH, 3600.0),
    Fault.PAYMENT: _Blocking(Reason.PROVIDER_PAYMENT, 3600.0),
}
_FAULTS: Final[Mapping[str, Fault]] = {str(fault): fault for fault in Fault}
_PASSING: Final = _Blocking(Reason.NO_CAPACITY, 15.0)


def give_up(view: View, now: datetime, broken: Sequence[NodeRow], detail: str) -> Decision:
    """Some nodes did not come: plan anew, or where the job ran before replace them."""
    if view.memory.started:
        decision = lose(view, now, "node_lost", detail)
        late = [node.id for node in broken if not is_down(node)]  # those that are down are let go in any case
        if not late or decision.change.trigger is not Trigger.NODE_LOST:
            return decision
        machines = [node for node in broken if node.id in late and node.handle is not None]
        memory = {**(decision.memory or {}), "avoid": avoiding(view, now, machines, detail)}
        writes = [Release(late, detail), *decision.writes]
        return look_first(machines) or replace(decision, writes=writes, memory=memory)
    # One that never appeared says nothing of its offer: a step may have died before it made the call.
    appeared = any(node.handle is not None for node in broken)
    with_own_image = appeared and bool(_of_image(view, broken[0]))
    failures = view.memory.boot_failures + 1 if with_own_image else 0
    if failures >= MOST_FAILURES:
        told = f"{failures} gangs in a row did not come up with it; the last: {detail}"
        return stop(Reason.INVALID, f"{_of_image(view, broken[0])}{told}")
    for_s = _NOT_READY_BLOCK_S if appeared else 0.0
    decision = _plan_anew(view, now, broken[0], detail, _Blocking(Reason.NO_CAPACITY, for_s), Scope.OFFER)
    return replace(decision, memory={**(decision.memory or {}), "boot_failures": failures})


def failed_to_come(view: View, now: datetime, node: NodeRow) -> Decision:
    """A node that its provider calls down before it was ready: as a create call that named the same fault."""
    told = node.condition_reason or "the provider does not say why"
    detail = f"node {node.rank} is {node.condition}: {told}"
    fault = _FAULTS.get(node.condition_fault or "")
    scope = Scope(node.condition_scope or Scope.OFFER)
    if fault is Fault.INVALID and scope not in (Scope.ACCOUNT, Scope.PROVIDER):
        return stop(Reason.INVALID, f"{_of_image(view, node)}{node.instance}: {told}")
    if fault is Fault.INVALID:
        return abandon(view, now, node, f"{detail} (the settings of {node.instance} are wrong)", Reason.INVALID, scope)
    if fault is not None and fault in _BLOCKS:
        return _after_refusal(view, now, node, ProviderError(fault, detail, scope=scope), _BLOCKS[fault])
    return give_up(view, now, [node], detail)


def abandon(view: View, now: datetime, node: NodeRow, detail: str, reason: Reason, scope: Scope) -> Settle:
    """What was offered is no good, for longer than a moment: plan anew without it, or recover where the job ran."""
    if view.memory.started:
        decision = lose(view, now, str(reason), detail)
        if decision.change.trigger is not Trigger.NODE_LOST:
            return decision
        return replace(decision, writes=[Release([node.id], detail), *decision.writes])
    return _plan_anew(view, now, node, detail, _Blocking(reason, _BAD_OFFER_BLOCK_S), scope)


def plan_anew(view: View, now: datetime, node: NodeRow, detail: str, for_s: float) -> Settle:
    """What was planned does not hold: nothing was called for this node, and its offer is passed over for so long."""
    return _plan_anew(view, now, node, detail, _Blocking(Reason.NO_CAPACITY, for_s), Scope.OFFER)


def create_failed(view: View, now: datetime, node: NodeRow, error: ProviderError) -> Settle:
    """A create call ended with an error."""
    if error.may_have_created or error.fault in (Fault.AMBIGUOUS, Fault.CONFLICT):
        return Settle(Change(next_in_s=0.0), [MarkUnknown(node.id, error.detail)])
    refused: list[Write] = [Close(node, {"kind": "refused", **_of_the_account(node, error, now)})]
    told: list[tuple[str, Mapping[str, Any]]] = [("node.create_failed", _failure(node, error))]
    if error.fault is Fault.INVALID:
        change = Change(Trigger.STOP, Reason.INVALID, error.detail, next_in_s=0.0, events=told)
        return Settle(change, refused)
    failures = view.memory.create_failures + (error.fault is not Fault.RATE_LIMITED)
    if error.fault not in _BLOCKS and failures <= MOST_FAILURES:
        back_off_s = error.retry_after_s or 2.0**failures
        memory = view.memory.but(not_before=now.timestamp() + back_off_s, create_failures=failures)
        return Settle(Change(next_in_s=back_off_s, events=told), refused, memory)
    blocking = _BLOCKS.get(error.fault, _PASSING)
    decision = _after_refusal(view, now, node, error, blocking)
    decision.change.events[:0] = told
    return Settle(decision.change, [*refused, *decision.writes], decision.memory)


def _of_image(view: View, node: NodeRow) -> str:
    """What a message begins with that may be about the job's own image; empty where the node booted none."""
    image = view.document.environment.image
    boots_it = image is not None and not view.capabilities_of(node).runs_images_by_docker
    return f"environment.image {image}: " if boots_it else ""


def _of_the_account(node: NodeRow, error: ProviderError, now: datetime) -> dict[str, Any]:
    """What is kept for the operator, who can do something about it, and for other jobs; else nothing."""
    if error.fault not in (Fault.AUTH, Fault.PAYMENT, Fault.QUOTA):
        return {}
    told = {"at": now.isoformat(), "fault": str(error.fault), "scope": str(error.scope), "detail": with_advice(error)}
    asked = {name: str(node.offer.get(name, "")) for name in ("instance_type", "region")}
    return {"refusal": {**told, **asked}}


def _failure(node: NodeRow, error: ProviderError) -> dict[str, Any]:
    return {"rank": node.rank, "provider": node.instance, "fault": str(error.fault), "detail": error.detail}


def _after_refusal(view: View, now: datetime, node: NodeRow, error: ProviderError, blocking: _Blocking) -> Settle:
    if not view.memory.started:
        return _plan_anew(view, now, node, error.detail, blocking, error.scope)
    decision = lose(view, now, str(error.fault), error.detail)
    blocks = _blocks(view, now, node, error.detail, blocking, error.scope)
    return replace(decision, memory={**(decision.memory or view.memory.as_json()), "blocks": blocks})


def _plan_anew(view: View, now: datetime, node: NodeRow, detail: str, blocking: _Blocking, scope: Scope) -> Settle:
    """Back to `queued` with everything of this attempt released, and what failed avoided for a while."""
    change = Change(
        trigger=Trigger.CAPACITY_LOST,
        next_in_s=1.0,
        set={"plan": None, "provider": None},
        events=[("job.capacity_lost", {"provider": node.instance, "detail": detail})],
    )
    blocks = _blocks(view, now, node, detail, blocking, scope)
    memory = view.memory.but(blocks=blocks, create_failures=0, not_before=now.timestamp() + 1.0)
    return Settle(change, [Release([member.id for member in view.members], detail)], memory)


def _blocks(
    view: View, now: datetime, node: NodeRow, detail: str, blocking: _Blocking, scope: Scope
) -> list[Mapping[str, Any]]:
    """What is avoided from now on."""
    block = {
        "instance": node.instance,
        "scope": str(scope),
        "reason": str(blocking.reason),
        "detail": detail,
        "instance_type": node.offer.get("instance_type", ""),
        "region": node.offer.get("region", ""),
        "until": now.timestamp() + blocking.for_s,
    }
    return [*(entry for entry in view.memory.blocks if entry["until"] > now.timestamp()), block]
