"""What becomes of a node that is there and is no good: not what was offered, or out of the others' reach.

It is let go, its machine is passed over by the next create calls of the job, and a new node takes its rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from shunter_providers.contract import Scope
from shunter_schemas.states import Reason
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change
from shunter_store.node.ledger import NodeRow

from shunter_workers.decisions import Decision, Release, Settle
from shunter_workers.mustering import Unmet
from shunter_workers.states.avoiding import avoiding, look_first, machine_of
from shunter_workers.states.ends import lose
from shunter_workers.states.giving_up import MOST_FAILURES, abandon
from shunter_workers.view import View


def refuse_unusable(view: View, now: datetime) -> Decision | None:
    """A node that the core brings up itself, and did not accept."""
    for node in view.members:
        detail = view.refusals.get(node.id)
        if detail is not None:
            return refuse(view, now, Unmet(node, f"node {node.rank} is refused: {detail}"))
    return None


def lose_unusable(view: View, now: datetime) -> Decision | None:
    """The same of a job that runs: the rest of the gang is kept."""
    for node in view.members:
        detail = view.refusals.get(node.id)
        if detail is not None:
            return _lose_unusable(view, now, node, detail)
    return None


def _lose_unusable(view: View, now: datetime, node: NodeRow, detail: str) -> Decision:
    decision = lose(view, now, "node_lost", f"node {node.rank}: {detail}")
    if decision.change.trigger is not Trigger.NODE_LOST:
        return decision
    memory = {**(decision.memory or view.memory.as_json()), "avoid": avoiding(view, now, [node], detail)}
    writes = [Release([node.id], detail), *decision.writes]
    return look_first([node]) or replace(decision, writes=writes, memory=memory)


def refuse(view: View, now: datetime, unmet: Unmet) -> Decision:
    """Without this node, and without its machine; an offer that brings one bad node after the other is left too."""
    node, failures = unmet.node, view.memory.create_failures + 1
    if (look := look_first([node])) is not None:
        return look
    avoid = avoiding(view, now, [node], unmet.detail)
    told = ("node.refused", {"node": node.id, "node_rank": node.rank, **machine_of(node), "detail": unmet.detail})
    if failures > MOST_FAILURES or not _has_others(view, avoid):
        decision = abandon(view, now, node, unmet.detail, Reason.NO_CAPACITY, Scope.OFFER)
        decision.change.events[:0] = [told]
        return replace(decision, memory={**(decision.memory or view.memory.as_json()), "avoid": avoid})
    memory = view.memory.but(avoid=avoid, create_failures=failures)
    return Settle(Change(next_in_s=0.0, events=[told]), [Release([node.id], unmet.detail)], memory)


def _has_others(view: View, avoid: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the offer has enough hosts besides; where its machines have no names, it always may."""
    names = set(view.plan.offer.host_names)
    return not names or len(names - {entry["machine"] for entry in avoid}) >= view.plan.num_nodes
