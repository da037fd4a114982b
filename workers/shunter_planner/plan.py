"""The search: which offer the job takes, with the reason for every one that it does not take.

One candidate so far: the document's own strategy, as many ranks as it says, and the cheapest offer that takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shunter_schemas.batching import batch_plan
from shunter_schemas.job import JobSpec
from shunter_schemas.states import Reason
from shunter_schemas.training import TrainingWorkload

from shunter_planner.fitting import Shape, fit, slots_of
from shunter_planner.matching import capacity_rank, mismatch
from shunter_planner.values import Candidate, Facts, History, Plan, Refusal, Rejection

_MOST_THREADS = 16

# By what a final refusal is called when several offers were rejected for different things: the first that occurs.
_FINAL_REASONS: Sequence[tuple[frozenset[str], Reason]] = (
    (frozenset({"too_small"}), Reason.DOES_NOT_FIT),
    (frozenset({"price"}), Reason.NO_CAPACITY),
)


def plan(document: JobSpec, offers: Sequence[Candidate], facts: Facts, history: History) -> Plan | Refusal:
    """The cheapest offer that takes the job, or why none does.

    No clock and no I/O: the same arguments give the same answer. Never raises for a document that was accepted.
    """
    invalid = _not_yet(document) or _unknown_provider(document, facts)
    if invalid is not None:
        return Refusal(Reason.INVALID, invalid, final=True)
    rejected = [
        Rejection(entry.instance, "", "", "unavailable", entry.detail, final=False)
        for entry in facts.unavailable
        if not document.placement.providers or entry.instance in document.placement.providers
    ]
    fitting: list[tuple[Candidate, Shape]] = []
    for candidate in offers:
        verdict = _judge(document, candidate, facts)
        if isinstance(verdict, Rejection):
            rejected.append(verdict)
        else:
            fitting.append((candidate, verdict))
    if not fitting:
        return _refuse(document, rejected, facts)
    chosen, shape = min(fitting, key=lambda pair: _preference(document, *pair))
    return _make_plan(document, chosen, shape, rejected)


def _judge(document: JobSpec, candidate: Candidate, facts: Facts) -> Shape | Rejection:
    rejection = mismatch(document, candidate)
    if rejection is not None:
        return rejection
    verdict = fit(document, candidate)
    block = next((block for block in facts.blocks if block.covers(candidate)), None)
    if block is None or isinstance(verdict, Rejection):
        return verdict
    offer = candidate.offer
    return Rejection(candidate.instance, offer.instance_type, offer.region, "blocked", block.detail, final=False)


def _preference(document: JobSpec, candidate: Candidate, shape: Shape) -> tuple[int, float, int, str, str]:
    """Kind of capacity, price, then most free capacity; names last, so that the choice never depends on order."""
    offer = candidate.offer
    free = offer.free if offer.free is not None else (offer.count or 0) * slots_of(offer, shape.slot_kind)
    rate = shape.num_nodes * offer.price.usd_per_hour
    return capacity_rank(document, offer), rate, -free, candidate.instance, offer.instance_type


def _make_plan(document: JobSpec, chosen: Candidate, shape: Shape, rejected: Sequence[Rejection]) -> Plan:
    micro_size, accumulation = _batch(document, shape.world_size)
    offer = chosen.offer
    slots = slots_of(offer, shape.slot_kind) if chosen.shared_host else shape.ranks_per_node
    return Plan(
        instance=chosen.instance,
        offer=replace(offer, free=None),  # true for a moment only; kept out so that equal plans compare equal
        num_nodes=shape.num_nodes,
        ranks_per_node=shape.ranks_per_node,
        world_size=shape.world_size,
        slot_kind=shape.slot_kind,
        shared_host=chosen.shared_host,
        cpu_threads_per_rank=min(_MOST_THREADS, max(1, offer.cpus // max(1, slots))),
        usd_per_hour=shape.num_nodes * offer.price.usd_per_hour,
        strategy=document.strategy.model_dump(mode="json"),
        micro_size=micro_size,
        accumulation=accumulation,
        rejected=tuple(rejected),
    )


def _refuse(document: JobSpec, rejected: Sequence[Rejection], facts: Facts) -> Refusal:
    reasons = {entry.reason for entry in rejected}
    waiting = [entry for entry in rejected if not entry.final]
    blocked = [block for block in facts.blocks if block.reason in (Reason.PROVIDER_AUTH, Reason.PROVIDER_PAYMENT)]
    if waiting and all(entry.reason == "blocked" for entry in waiting) and blocked:
        # Only an operator can help, and was told; the job does not sit there until then.
        return Refusal(blocked[0].reason, blocked[0].detail, final=True, rejected=tuple(rejected))
    if waiting:
        detail = "; ".join(f"{_name(entry)}: {entry.detail}" for entry in waiting)
        return Refusal(Reason.NO_CAPACITY, detail, final=False, rejected=tuple(rejected))
    reason = next((end for slugs, end in _FINAL_REASONS if reasons & slugs), Reason.NO_CAPACITY)
    detail = "; ".join(f"{_name(entry)}: {entry.detail}" for entry in rejected) or "no provider offers anything"
    return Refusal(reason, f"no offer takes this job: {detail}", final=True, rejected=tuple(rejected))


def _name(entry: Rejection) -> str:
    return f"{entry.instance} {entry.instance_type}".strip()


def _not_yet(document: JobSpec) -> str | None:
    """What a document may say but no planner can do yet; refused at the door already."""
    try:
        world_size = document.gang().world_size
    except ValueError as exc:
        return str(exc)
    if document.strategy.kind == "auto":
        return "`strategy: auto` is not available yet: name a strategy"
    workload = document.workload
    if isinstance(workload, TrainingWorkload) and workload.batch.global_size % world_size:
        return f"a global batch of {workload.batch.global_size} does not divide over {world_size} ranks"
    return None


def _unknown_provider(document: JobSpec, facts: Facts) -> str | None:
    known = set(facts.instances)
    wanted = document.placement.providers
    if not wanted or known & set(wanted):
        return None
    return f"no provider named {', '.join(wanted)} is configured (there are: {', '.join(sorted(known)) or 'none'})"


def _batch(document: JobSpec, world_size: int) -> tuple[int | None, int | None]:
    """Micro-batch and accumulation; documents whose sizes do not divide are refused when they are submitted."""
    if not isinstance(document.workload, TrainingWorkload):
        return None, None
    batch = batch_plan(document.workload, world_size)
    return batch.micro_size, batch.accumulation
