"""Making a gang whole and starting it: the same in `provisioning` and in `recovering`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from shunter_schemas.node_sync import Phase
from shunter_schemas.states import NodeState
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change
from shunter_store.node.ledger import NodeRow

from shunter_workers.assignments import make_orders
from shunter_workers.decisions import Act, Decision, Intend, Place, Run, Settle, Tell, wait
from shunter_workers.mustering import (
    SKEW_S,
    Meeting,
    Unmet,
    gathers,
    impostor,
    judge,
    missing,
    skew_s,
    tell,
)
from shunter_workers.states.ends import next_limit_s, stop_by
from shunter_workers.states.queued import choose_slots
from shunter_workers.states.refusing import refuse
from shunter_workers.view import View, soonest

LOOK_AFTER_S: Final = 60.0
"""Nodes were told to run."""
MUSTER_WITHIN_S: Final = 90.0
"""A node that has not opened its ports, or not called the others, after this is as good as lost."""


def start(view: View, now: datetime) -> Decision:
    """Every node runs the next generation. Only for a gang that is whole and ready; several nodes gather first."""
    change = Change(trigger=Trigger.NODES_READY, next_in_s=0.0, set={"waiting": None})
    if has_orders(view):
        return Settle(change, memory=view.memory.but(started=True, create_failures=0, short_since=None))
    found = impostor(view, view.members)
    if found is not None:
        return refuse(view, now, found)
    meeting = _gather(view, now) if view.plan.num_nodes > 1 else None
    if isinstance(meeting, Settle | Act):
        return meeting
    run = order(view, view.members, now, meeting)
    change.set["generation"] = run.generation
    # What the nodes make of their orders wakes the job: there is nothing to see at once.
    change.next_in_s = soonest(LOOK_AFTER_S, next_limit_s(view, now))
    change.events.extend(_told(view, meeting, run.generation))
    return Settle(
        change,
        [run],
        view.memory.but(ordered_generation=run.generation, started=True, create_failures=0, short_since=None),
    )


def order(view: View, members: Sequence[NodeRow], now: datetime, meeting: Meeting | None = None) -> Run:
    """What tells these nodes, the whole gang, to run their next generation."""
    generation = next_generation(view, members)
    return Run(make_orders(view, members, generation, meeting), generation, stop_by(view, now))


def next_generation(view: View, members: Sequence[NodeRow]) -> int:
    """The gang's own, or a new one if a member ran that before."""
    ran = any(node.run_generation >= view.job.generation for node in members)
    return view.memory.ordered_generation + 1 if ran else view.job.generation


def _gather(view: View, now: datetime) -> Meeting | Decision:
    """Where the nodes reach each other; or the next thing until that is known."""
    members = view.members
    generation = next_generation(view, members)
    unaware = [node.id for node in members if not gathers(node, generation)]
    if unaware:
        return Settle(Change(next_in_s=0.0), [Tell(unaware, Phase.MUSTER, generation)])
    found = judge(members, generation)
    if isinstance(found, Meeting):
        return found
    if found is not None:
        return refuse(view, now, found)
    left_s = MUSTER_WITHIN_S - (now - max(node.desired_at for node in members)).total_seconds()
    if left_s > 0:
        return wait(soonest(left_s, next_limit_s(view, now)))
    late = (missing(members, generation) or members)[-1]
    return refuse(view, now, Unmet(late, f"node {late.rank} did not gather within {MUSTER_WITHIN_S:g} s"))


def _told(view: View, meeting: Meeting | None, generation: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What of the nodes is worth a line in the job's history."""
    if meeting is not None:
        yield "gang.met", tell(view.members, meeting, generation)
    for node in view.members:
        skewed_s = skew_s(node)
        if abs(skewed_s) >= SKEW_S:
            yield "node.clock_skew", {"node": node.id, "node_rank": node.rank, "skew_s": round(skewed_s, 1)}


def takes_orders_early(view: View, node: NodeRow) -> bool:
    """Whether the node is told what to run before it exists, so that its first exchange brings the order.

    Only where it is the whole gang, no twin of it can come to be, and there is nothing to accept: it is a process on a
    machine of one's own.
    """
    capabilities = view.capabilities_of(node)
    return view.plan.num_nodes == 1 and capabilities.idempotency == "unique_name" and not capabilities.bills


def has_orders(view: View) -> bool:
    """Whether every member was told to run this generation already."""
    generation = view.job.generation
    return all(node.desired_phase == Phase.RUN and node.run_generation == generation for node in view.members)


def is_ready(view: View) -> bool:
    """Whether every rank has its node, and every node a handle and an agent that reported."""
    ready = all(node.state is NodeState.READY and node.handle is not None for node in view.members)
    return ready and not missing_ranks(view)


def missing_ranks(view: View) -> list[int]:
    """Ranks of the plan without a node."""
    present = {node.rank for node in view.members}
    return [rank for rank in range(view.plan.num_nodes) if rank not in present]


def intend_missing(view: View) -> Intend | None:
    """New nodes for the missing ranks, of the plan's own kind; None: not yet, since their slots are not free, or since
    it is not known whose they would be, without which nothing could prove their absence later."""
    if not view.accounts.get(view.plan.instance):
        return None
    ranks = missing_ranks(view)
    places = [Place(rank, slots) for rank, slots in zip(ranks, choose_slots(view, view.plan, ranks), strict=True)]
    whole = all(len(place.slot_indices) >= view.plan.ranks_per_node for place in places)
    if view.plan.shared_host and not whole:
        return None
    return Intend(view.plan, places, view.job.generation)
