"""Machines that a job passes over, since a node on them was no good: the next create calls name them.

Only providers that name their machines (`NodeView.addresses["machine"]`) and choose among them can heed it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from shunter_planner.values import offer_from_json
from shunter_store.node.ledger import NodeRow

from shunter_workers.choosing import hosts_of
from shunter_workers.decisions import Act, Look
from shunter_workers.view import View

AVOID_FOR_S: Final = 900.0
"""Firewalls, cables and disks are mended; a wrong inventory is not by itself."""
MACHINE: Final = "machine"
"""The key of a node's addresses under which its provider names the machine, where it names it."""


def look_first(nodes: Sequence[NodeRow]) -> Act | None:
    """What has to be asked before these nodes are let go for what their machines are: where one of them is that no
    listing has shown yet. Else the same machine may be taken again at once. None: nothing, or there is no answer."""
    unseen = (node for node in nodes if node.handle is not None and node.condition is None)
    return next((Act(Look(node)) for node in unseen if not machine_of(node)["machine"]), None)


def avoiding(view: View, now: datetime, nodes: Sequence[NodeRow], detail: str) -> list[Mapping[str, Any]]:
    """What the job's memory holds of machines to avoid, once those of these nodes are added."""
    standing = [entry for entry in view.memory.avoid if entry["until"] > now.timestamp()]
    until = now.timestamp() + AVOID_FOR_S
    machines = [machine for node in nodes if (machine := machine_of(node))["machine"]]
    return [*standing, *({**machine, "detail": detail, "until": until} for machine in machines)]


def avoided(view: View, instance: str) -> tuple[str, ...]:
    """Machines of this instance that the job passes over at this moment."""
    standing = [entry for entry in view.memory.avoid if entry["until"] > time.time()]
    return tuple(str(entry["machine"]) for entry in standing if entry["provider"] == instance)


def machine_of(node: NodeRow) -> dict[str, Any]:
    """Where a node is, as far as its provider tells."""
    return {"provider": node.instance, "machine": node.addresses.get(MACHINE) or _host_name(node)}


def _host_name(node: NodeRow) -> str:
    """By its slots, before any listing showed it."""
    offer = offer_from_json(node.offer)
    if not offer.host_stride or not node.slot_indices:
        return ""
    return hosts_of(offer).get(node.slot_indices[0] // offer.host_stride, "")
