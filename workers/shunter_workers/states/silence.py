"""When a node that is not heard any more has surely stopped its ranks.

Its lease must be over, and the grace of its ranks; and it must not have been heard since a step first found that, for
as long as a node may be silent. The second condition is about the clock that leases are counted by: where that is set
ahead by hours, every lease seems to be over at once, until each node is heard the next time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from shunter_store.node.ledger import NodeRow

from shunter_workers.view import View, soonest

Mute = Mapping[str, Sequence[float]]
"""By node id: when it was heard last, and when a step first found it mute. Seconds since the epoch."""


def mute(view: View, now: datetime) -> Mute:
    """The members whose leases are over. One that was heard since it was found, or found at a moment that is still to
    come, by a clock that was set back then, is found anew."""
    found: dict[str, list[float]] = {}
    for node in view.members:
        ends_at = _ranks_end_at(view, node)
        if ends_at is None or now.timestamp() < ends_at:
            continue
        found[node.id] = [_heard_at(node), now.timestamp()]
        if (noted := _noted(view, node)) is not None and noted <= now.timestamp():
            found[node.id][1] = noted
    return found


def has_lasted(view: View, found: Mute, node: NodeRow, now: datetime) -> bool:
    """Whether it was found mute so long ago that it would have been heard since."""
    return node.id in found and now.timestamp() - found[node.id][1] >= view.unreachable_after_s


def next_look_s(view: View, now: datetime) -> float | None:
    """How long until some member counts as stopped, or is found mute, unless it is heard before."""
    return soonest(*(_next_look_s(view, node, now) for node in view.members))


def _next_look_s(view: View, node: NodeRow, now: datetime) -> float | None:
    ends_at, noted = _ranks_end_at(view, node), _noted(view, node)
    if ends_at is None:
        return None
    due_at = ends_at if noted is None else noted + view.unreachable_after_s
    return max(0.0, due_at - now.timestamp())


def _noted(view: View, node: NodeRow) -> float | None:
    """When it was found mute; None: it was not, or was heard since."""
    heard_at, noted_at = view.memory.mute.get(node.id) or (None, 0.0)
    return noted_at if heard_at == _heard_at(node) else None


def _heard_at(node: NodeRow) -> float:
    return node.last_sync_at.timestamp() if node.last_sync_at is not None else 0.0


def _ranks_end_at(view: View, node: NodeRow) -> float | None:
    """When its ranks have ended if it is never heard again; None: it has no lease, or no agent yet."""
    if node.lease_granted_until is None or not node.run_generation:
        return None
    grace_s = float((node.assignment or {}).get("stop_grace_s") or view.stop_grace_s)
    return node.lease_granted_until.timestamp() + grace_s
