"""What follows from a provider's answer. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from shunter_providers.contract import Fault, NodeCondition, ProviderError
from shunter_schemas.states import NodeState, State
from shunter_store.job.steps import Change
from shunter_store.node.ledger import NodeRow

from shunter_workers.decisions import (
    Act,
    Close,
    Create,
    Created,
    Found,
    Look,
    Looked,
    RecordHandle,
    RecordSeen,
    Result,
    Search,
    Settle,
    Terminated,
)
from shunter_workers.states.closing import FIRST_RETRY_S
from shunter_workers.states.giving_up import create_failed
from shunter_workers.view import View, seconds_until, soonest

OTHER_ACCOUNT_RETRY_S: Final = 60.0
"""Only an operator can mend it."""


def settle(view: View, act: Act, result: Result, now: datetime) -> Settle:
    """The end of a step that called a provider."""
    node = act.action.node
    if isinstance(act.action, Look):
        return _seen(node, result)
    if isinstance(result, ProviderError):
        if isinstance(act.action, Create):
            return create_failed(view, now, node, result)
        return _call_failed(view, act, result, now)
    if isinstance(result, Created):
        alone = len(view.members) == view.plan.num_nodes == 1
        # There is no other call to make: its agent's first words wake the job.
        again_in_s = view.capabilities_of(node).readiness_deadline_s if alone else 0.0
        return Settle(Change(next_in_s=again_in_s), [RecordHandle(node.id, result.handle)])
    if isinstance(result, Found):
        return _searched(node, result, now)
    if isinstance(result, Terminated):
        return _asked(view, node, now)
    return _looked(view, node, result, now)


def _seen(node: NodeRow, result: Result) -> Settle:
    """Whatever it answered is written down, so that the question is put once; that it is not there proves nothing."""
    shown = result.view if isinstance(result, Looked) else None
    if shown is None or shown.condition is NodeCondition.GONE:
        detail = result.detail if isinstance(result, ProviderError) else "its provider did not find it"
        seen = RecordSeen(node.id, str(NodeCondition.UNKNOWN), detail, node.addresses)
    else:
        seen = RecordSeen(node.id, str(shown.condition), shown.reason, dict(shown.addresses))
    return Settle(Change(next_in_s=0.0), [seen])


def _searched(node: NodeRow, found: Found, now: datetime) -> Settle:
    """A node that is not listed may still appear until the create call's own deadline has passed."""
    if found.view is not None:
        return Settle(Change(next_in_s=0.0), [RecordHandle(node.id, found.view.handle)])
    left_s = seconds_until(node.create_deadline_at, now) or 0.0
    return Settle(Change(next_in_s=min(FIRST_RETRY_S, left_s)))


def _asked(view: View, node: NodeRow, now: datetime) -> Settle:
    """Whatever it answered: scans show when the node is gone, and are quick while it is not."""
    others = [other.id for other in view.nodes if other.id != node.id]
    last = view.job.state is State.STOPPING and all(other in view.memory.asked for other in others)
    return Settle(Change(next_in_s=FIRST_RETRY_S if last else 0.0), memory=_remember_asking(view, node, now))


def _looked(view: View, node: NodeRow, looked: Looked, now: datetime) -> Settle:
    if looked.view.condition is NodeCondition.GONE and looked.account != node.account:
        return _looked_elsewhere(node, looked.account)
    if looked.view.condition is NodeCondition.GONE:
        proof = {"kind": "absent", "account": looked.account, "get": "gone"}
        asked = {key: at for key, at in view.memory.asked.items() if key != node.id}
        return Settle(Change(next_in_s=0.0), [Close(node, proof)], view.memory.but(asked=asked))
    return Settle(Change(next_in_s=FIRST_RETRY_S), memory=_remember_asking(view, node, now))


def _looked_elsewhere(node: NodeRow, account: str) -> Settle:
    """That another account does not have the node proves nothing: an operator has to bring its own one back."""
    detail = f"the node belongs to account {node.account}, and the credentials are those of {account}"
    told = {"node": node.token, "provider": node.instance, "fault": str(Fault.AUTH), "detail": detail}
    return Settle(Change(next_in_s=OTHER_ACCOUNT_RETRY_S, events=[("node.provider_error", told)]))


def _call_failed(view: View, act: Act, error: ProviderError, now: datetime) -> Settle:
    """Nothing is known; the row stays open and the call is made again."""
    node = act.action.node
    again_in_s = error.retry_after_s or FIRST_RETRY_S
    if isinstance(act.action, Search) and view.job.state is State.PROVISIONING:
        again_in_s = soonest(again_in_s, seconds_until(node.create_deadline_at, now)) or FIRST_RETRY_S
    detail = {"node": node.token, "provider": node.instance, "fault": str(error.fault), "detail": error.detail}
    asked = _remember_asking(view, node, now) if node.state is NodeState.RELEASING else None
    return Settle(Change(next_in_s=again_in_s, events=[("node.provider_error", detail)]), memory=asked)


def _remember_asking(view: View, node: NodeRow, now: datetime) -> dict[str, object]:
    return view.memory.but(asked={**view.memory.asked, node.id: now.timestamp()})
