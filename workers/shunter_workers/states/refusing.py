"""What becomes of a node that is there and is no good: not what was offered, or out of the others' reach.

It is let go, its machine is passed over by the next create calls of the job, and a new node takes its rank.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from shunter_planner.values import offer_from_json
from shunter_providers.contract import Scope
from shunter_schemas.states import Reason
from shunter_store.ledger import NodeRow
from shunter_store.steps import Change

from shunter_workers.choosing import hosts_of
from shunter_workers.decisions import Release, Settle
from shunter_workers.mustering import Unmet
from shunter_workers.states.giving_up import MOST_FAILURES, abandon
from shunter_workers.view import View

AVOID_FOR_S: Final = 900.0
"""How long a job passes a machine over. Firewalls are mended; a wrong inventory is not by itself."""
MACHINE: Final = "machine"
"""The key of a node's addresses under which its provider names the machine, where it names it."""


def refuse_unusable(view: View, now: datetime) -> Settle | None:
    """A node that the core brings up itself, and did not accept."""
    for node in view.members:
        detail = view.refusals.get(node.id)
        if detail is not None:
            return refuse(view, now, Unmet(node, f"node {node.rank} is refused: {detail}"))
    return None


def refuse(view: View, now: datetime, unmet: Unmet) -> Settle:
    """Without this node, and without its machine; an offer that brings one bad node after the other is left too."""
    node, failures = unmet.node, view.memory.create_failures + 1
    avoided = [entry for entry in view.memory.avoid if entry["until"] > now.timestamp()]
    if _machine(node)["machine"]:
        avoided.append({**_machine(node), "detail": unmet.detail, "until": now.timestamp() + AVOID_FOR_S})
    told = ("node.refused", {"node": node.id, "node_rank": node.rank, **_machine(node), "detail": unmet.detail})
    if failures > MOST_FAILURES or not _has_others(view, avoided):
        decision = abandon(view, now, node, unmet.detail, Reason.NO_CAPACITY, Scope.OFFER)
        decision.change.events[:0] = [told]
        return replace(decision, memory={**(decision.memory or view.memory.as_json()), "avoid": avoided})
    memory = view.memory.but(avoid=avoided, create_failures=failures)
    return Settle(Change(next_in_s=0.0, events=[told]), [Release([node.id], unmet.detail)], memory)


def avoided(view: View, instance: str) -> tuple[str, ...]:
    """Machines of this instance that the job passes over at this moment."""
    standing = [entry for entry in view.memory.avoid if entry["until"] > time.time()]
    return tuple(str(entry["machine"]) for entry in standing if entry["provider"] == instance)


def _machine(node: NodeRow) -> dict[str, Any]:
    return {"provider": node.instance, "machine": node.addresses.get(MACHINE) or _host_name(node)}


def _host_name(node: NodeRow) -> str:
    """By its slots, before any listing showed it."""
    offer = offer_from_json(node.offer)
    if not offer.host_stride or not node.slot_indices:
        return ""
    return hosts_of(offer).get(node.slot_indices[0] // offer.host_stride, "")


def _has_others(view: View, avoided: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the offer has enough hosts besides; where its machines have no names, it always may."""
    names = set(view.plan.offer.host_names)
    return not names or len(names - {entry["machine"] for entry in avoided}) >= view.plan.num_nodes
