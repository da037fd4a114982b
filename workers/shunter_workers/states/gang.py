"""Making a gang whole and starting it: the same in `provisioning` and in `recovering`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from shunter_schemas.node_sync import Phase
from shunter_schemas.states import NodeState
from shunter_store.ledger import NodeRow
from shunter_store.lifecycle import Trigger
from shunter_store.steps import Change

from shunter_workers.assignments import make_orders
from shunter_workers.decisions import Intend, Place, Run, Settle
from shunter_workers.states.ends import stop_by
from shunter_workers.states.queued import choose_slots
from shunter_workers.view import View


def start(view: View, now: datetime) -> Settle:
    """Every node runs the next generation. Only for a gang that is whole and ready."""
    change = Change(trigger=Trigger.NODES_READY, next_in_s=0.0, set={"waiting": None})
    if has_orders(view):
        return Settle(change, memory=view.memory.but(started=True, create_failures=0))
    run = order(view, view.members, now)
    change.set["generation"] = run.generation
    return Settle(change, [run], view.memory.but(ordered_generation=run.generation, started=True, create_failures=0))


def order(view: View, members: Sequence[NodeRow], now: datetime) -> Run:
    """What tells these nodes, the whole gang, to run: the gang's own generation, or a new one if it ran that before."""
    generation = view.job.generation
    if any(node.run_generation >= generation for node in members):
        generation = view.memory.ordered_generation + 1
    return Run(make_orders(view, members, generation), generation, stop_by(view, now))


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
