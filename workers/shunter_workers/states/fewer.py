"""Lost nodes that cannot be replaced: on with fewer GPUs, where `recovery.min_gpus` allows it, or with all elsewhere.

The nodes that live come first: they have the environment and the data, and their ranks are counted anew. A plan for
fewer GPUs is made only after the job has run once, and only after all of them could not be had for a while. The job
goes back to all of them when its next gang is planned whole: a training that runs is not stopped in order to grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from shunter_planner import Candidate, Plan, plan
from shunter_planner.fitting import gangs_of
from shunter_planner.values import as_json
from shunter_schemas.job import JobSpec
from shunter_schemas.resources import GpuRange, Resources
from shunter_store.job.steps import Change
from shunter_store.node.ledger import NodeRow

from shunter_workers.decisions import Decision, Release, Renumber, Settle
from shunter_workers.states.reckoning import facts_of
from shunter_workers.view import View

SLOTS_PATIENCE_S: Final = 30.0
"""Slots of a lost node are free again once it is seen to be gone; for so long they are waited for."""
PATIENCE_S: Final = 150.0
"""So long all GPUs are waited for before fewer will do. Longer than a refusal of the provider is taken for its last
word, so that it is asked twice at least."""


def patience_left_s(view: View, now: datetime) -> float:
    """How long what is missing may still be waited for."""
    since = view.memory.short_since
    waited_s = 0.0 if since is None else now.timestamp() - since
    patience_s = PATIENCE_S if smaller_document(view.document) is not None else SLOTS_PATIENCE_S
    return patience_s - waited_s if 0 <= waited_s < patience_s else 0.0


def be_patient(view: View, now: datetime) -> dict[str, Any] | None:
    """What is remembered where not all could be had: since when. None: it is known already."""
    return None if view.memory.short_since is not None else view.memory.but(short_since=now.timestamp())


def is_refused(view: View, now: datetime) -> bool:
    """Whether nodes of the plan's own kind were refused a short time ago."""
    candidate = _candidate(view)
    return any(block.covers(candidate) for block in view.memory.standing_blocks(now))


def go_on_otherwise(view: View, now: datetime) -> Decision | None:
    """What becomes of a gang of which some nodes live and the others cannot be had; None: only waiting is left."""
    return _on_those_that_live(view, now) or _elsewhere(view, now)


def smaller_document(document: JobSpec) -> JobSpec | None:
    """The same job on fewer GPUs than it asked for, so many that it goes on fastest; None: it does not allow that."""
    least, resources = document.recovery.min_gpus, document.resources
    asked = resources.gpus.min if isinstance(resources.gpus, GpuRange) else resources.gang().world_size
    if least is None or least >= asked:
        return None
    fastest = document.placement.model_copy(update={"objective": "time"})
    smaller = _on(document, {"gpus": GpuRange(min=least, max=asked - 1), "nodes": None})
    smaller = smaller.model_copy(update={"placement": fastest})
    try:
        gangs_of(smaller)
    except ValueError:  # no such number divides the batch, or fills nodes
        return None
    return smaller


def resized(view: View, smaller: Plan) -> list[tuple[str, Mapping[str, Any]]]:
    """What the job's history says of a plan with another number of ranks than the one before; nothing otherwise."""
    resources = view.document.resources
    asked = 0 if isinstance(resources.gpus, GpuRange) else resources.gang().world_size
    before = view.plan.world_size if view.job.plan is not None else asked
    if not before or smaller.world_size == before:
        return []
    message = f"going on with {smaller.world_size} GPUs instead of {before}"
    return [("job.resized", {"world_size": smaller.world_size, "before": before, "message": message})]


def _on_those_that_live(view: View, now: datetime) -> Settle | None:
    least = view.document.recovery.min_gpus
    kept = sorted(view.members, key=lambda node: node.rank)
    per_node = view.plan.ranks_per_node
    if least is None:
        return None
    for count in range(len(kept), 0, -1):
        smaller = _planned_on(view, now, count) if count * per_node >= least else None
        if smaller is not None:
            return _shrunk(view, kept, smaller)
    return None


def _planned_on(view: View, now: datetime, count: int) -> Plan | None:
    """The plan on so many of the nodes; None: the batch, the model or a limit does not allow that number."""
    before = view.plan
    document = _on(view.document, {"gpus": None, "nodes": count, "gpus_per_node": before.ranks_per_node})
    facts = replace(facts_of(view, now), instances=[before.instance], unavailable=(), blocks=())
    answer = plan(document, [_candidate(view)], facts, view.history)
    return answer if isinstance(answer, Plan) else None


def _shrunk(view: View, kept: Sequence[NodeRow], smaller: Plan) -> Settle:
    staying, leaving = kept[: smaller.num_nodes], kept[smaller.num_nodes :]
    change = Change(next_in_s=0.0, set={"plan": as_json(smaller)}, events=resized(view, smaller))
    writes = [Renumber([(node.id, rank) for rank, node in enumerate(staying)])]
    released = [Release([node.id for node in leaving], "the smaller gang needs it not")] if leaving else []
    return Settle(change, [*writes, *released], view.memory.but(short_since=None))


def _elsewhere(view: View, now: datetime) -> Settle | None:
    """All of them leave for another offer that takes the whole gang, or as much of it as the document allows."""
    smaller, facts = smaller_document(view.document), facts_of(view, now)
    before = (view.plan.instance, view.plan.offer.instance_type, view.plan.offer.region)
    for document in (view.document, smaller):
        answer = None if document is None else plan(document, view.market.candidates, facts, view.history)
        if not isinstance(answer, Plan) or before == (answer.instance, answer.offer.instance_type, answer.offer.region):
            continue
        reason = f"the gang goes on on {answer.instance} {answer.offer.instance_type}"
        released = Release([node.id for node in view.members], reason)
        return Settle(Change(next_in_s=0.0), [released], view.memory.but(short_since=None))
    return None


def _on(document: JobSpec, changes: Mapping[str, Any]) -> JobSpec:
    resources: Resources = document.resources.model_copy(update=changes)
    return document.model_copy(update={"resources": resources})


def _candidate(view: View) -> Candidate:
    before = view.plan
    return Candidate(before.instance, before.offer, before.shared_host)
