"""Making a gang whole and starting it: the same in `provisioning` and in `recovering`."""

from __future__ import annotations

from shunter_schemas.states import NodeState
from shunter_store.lifecycle import Trigger
from shunter_store.steps import Change

from shunter_workers.assignments import make_orders
from shunter_workers.decisions import Intend, Place, Run, Settle
from shunter_workers.states.ends import duration_deadline
from shunter_workers.states.queued import choose_slots
from shunter_workers.view import View


def start(view: View) -> Settle:
    """Tell every node to run the next generation. Only for a gang that is whole and ready."""
    memory = view.memory
    generation = view.job.generation
    if memory.started_generation is not None:
        generation = max(generation, memory.started_generation + 1)
    change = Change(trigger=Trigger.NODES_READY, set={"generation": generation, "waiting": None})
    run = Run(make_orders(view, view.plan, generation), generation, duration_deadline(view))
    return Settle(change, [run], memory.but(started_generation=generation, create_failures=0))


def is_ready(view: View) -> bool:
    """Whether every rank has its node and every node its agent."""
    return not missing_ranks(view) and all(node.state is NodeState.READY for node in view.members)


def missing_ranks(view: View) -> list[int]:
    """Ranks of the plan without a node."""
    present = {node.rank for node in view.members}
    return [rank for rank in range(view.plan.num_nodes) if rank not in present]


def intend_missing(view: View) -> Intend | None:
    """New nodes for the missing ranks, of the plan's own kind; None: their slots are not free yet."""
    ranks = missing_ranks(view)
    places = [Place(rank, slots) for rank, slots in zip(ranks, choose_slots(view, view.plan, ranks), strict=True)]
    whole = all(len(place.slot_indices) == view.plan.ranks_per_node for place in places)
    if view.plan.shared_host and not whole:
        return None
    return Intend(view.plan, places, view.job.generation)
