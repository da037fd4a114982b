"""The search: which offer the job takes and how it runs there, with the reason for everything that it does not take.

Every offer that the document allows is a place for the gang; places of the same hardware are sized once (strategy,
micro-batch, activation checkpointing, memory, time), and the best place by the objective is the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shunter_schemas.batching import batch_plan, with_micro_size
from shunter_schemas.job import JobSpec
from shunter_schemas.resources import GangShape
from shunter_schemas.states import Reason
from shunter_schemas.training import TrainingWorkload

from shunter_planner.fitting import gangs_of, slots_of
from shunter_planner.hinted import tight, too_large
from shunter_planner.limits import Beyond, beyond_limits, limit_notes, way_out
from shunter_planner.models.document import Known, Unknown, model_of
from shunter_planner.near_misses import near_misses
from shunter_planner.search.choice import alternatives, cheapest_of_each_kind, choose
from shunter_planner.search.machines import Machine
from shunter_planner.search.places import places_of
from shunter_planner.search.quotes import Place, Quote, quote
from shunter_planner.search.sizing import Sized, Sizer, TooLarge
from shunter_planner.values import Alternative, Candidate, Facts, History, Plan, Refusal, Rejection

_MOST_THREADS: Final = 16
_TOLD: Final = 6
"""Different reasons that a message names."""
_NAMED: Final = 3
"""Offers that it names at each."""
MOST_REJECTED: Final = 40
"""Rejections that a plan keeps in words; all are counted."""

# By what a final refusal is called when several offers were rejected for different things: the first that occurs.
_FINAL_REASONS: Sequence[tuple[frozenset[str], Reason]] = (
    (frozenset({"too_small", "gpu_memory_needed"}), Reason.DOES_NOT_FIT),
    (frozenset({"price"}), Reason.NO_CAPACITY),
    (frozenset({"cost"}), Reason.BUDGET_EXHAUSTED),
    (frozenset({"duration"}), Reason.DURATION_EXCEEDED),
)


def plan(document: JobSpec, offers: Sequence[Candidate], facts: Facts, history: History) -> Plan | Refusal:
    """The best way to run the job, or why there is none.

    No clock and no I/O: the same arguments give the same answer. Never raises for a document that was accepted.
    """
    gangs = _gangs(document)
    invalid = gangs if isinstance(gangs, str) else _unknown_provider(document, facts)
    if isinstance(gangs, str) or invalid is not None:
        return Refusal(Reason.INVALID, str(invalid), final=True)
    rejected = [
        Rejection(entry.instance, "", "", "unavailable", entry.detail, final=False)
        for entry in facts.unavailable
        if not document.placement.providers or entry.instance in document.placement.providers
    ]
    places = cheapest_of_each_kind(places_of(document, offers, facts, gangs, rejected))
    model = facts.model or model_of(document.workload)
    beyond: list[Beyond] = []
    sizer = _sizer(document, model, facts, history)
    quotes = _quotes(document, places, sizer, replace(facts, model=model), rejected, beyond)
    if not quotes:
        return _refuse(_cheapest_first(rejected, offers), facts, beyond, [*near_misses(document, offers)])
    chosen = choose(document, quotes)
    others = alternatives(document, quotes, chosen)
    return _make_plan(document, chosen, others, replace(facts, model=model), rejected)


def _sizer(document: JobSpec, model: Known | Unknown, facts: Facts, history: History) -> Sizer | None:
    """None: the program distributes itself, or its size is not known."""
    if not isinstance(document.workload, TrainingWorkload) or not isinstance(model, Known):
        return None
    return Sizer(document, model, facts.most_micro_size, history.corrections)


def _quotes(
    document: JobSpec,
    places: Sequence[Place],
    sizer: Sizer | None,
    facts: Facts,
    rejected: list[Rejection],
    beyond: list[Beyond],
) -> list[Quote]:
    """What each place would take; each kind of machine is sized once."""
    model = facts.model
    sizes: dict[Machine, Sized | TooLarge | None] = {}
    found = []
    for place in places:
        machine = place.machine
        if machine not in sizes:
            sizes[machine] = None if sizer is None else sizer.size(machine)
        sized = sizes[machine]
        if isinstance(sized, TooLarge):
            rejected.append(_rejection(place, "gpu_memory_needed", sized.detail))
            continue
        if (hinted := too_large(document, machine)) is not None:
            rejected.append(_rejection(place, "gpu_memory_needed", hinted))
            continue
        exact = isinstance(model, Known) and model.shape.is_exact
        made = quote(document, place, sized, is_exact=exact)
        ruled_out = beyond_limits(document, made, facts)
        if ruled_out is None:
            found.append(made)
        else:
            beyond.append(ruled_out)
            rejected.append(_rejection(place, ruled_out.reason, ruled_out.detail))
    return found


def _rejection(place: Place, reason: str, detail: str) -> Rejection:
    candidate = place.candidate
    offer = candidate.offer
    return Rejection(candidate.instance, offer.instance_type, offer.region, reason, detail, final=True)


def _make_plan(
    document: JobSpec, chosen: Quote, others: Sequence[Quote], facts: Facts, rejected: Sequence[Rejection]
) -> Plan:
    place, model = chosen.place, facts.model
    assert model is not None, "it was found out"
    offer, shape, shared = place.candidate.offer, place.shape, place.candidate.shared_host
    slots = slots_of(offer, shape.slot_kind) if shared else shape.ranks_per_node
    cut = _cut(document, chosen, facts.most_micro_size)
    return Plan(
        instance=place.candidate.instance,
        offer=replace(offer, free=None),  # true for a moment only; kept out so that equal plans compare equal
        num_nodes=shape.num_nodes,
        ranks_per_node=shape.ranks_per_node,
        world_size=shape.world_size,
        slot_kind=shape.slot_kind,
        shared_host=shared,
        cpu_threads_per_rank=min(_MOST_THREADS, max(1, offer.cpus // max(1, slots))),
        usd_per_hour=place.usd_per_hour,
        strategy=cut.strategy,
        micro_size=cut.micro_size,
        accumulation=cut.accumulation,
        activation_checkpointing=cut.activation_checkpointing,
        why=_why(document, chosen, model),
        notes=(*_notes(document, chosen, model), *limit_notes(document, chosen, facts)),
        prediction=chosen.prediction,
        alternatives=tuple(_alternative(document, one, facts.most_micro_size) for one in others),
        rejected=_most_telling(rejected),
        rejected_by=dict(Counter(entry.reason for entry in rejected)),
    )


@dataclass(frozen=True, slots=True)
class _Pinned:
    """Every `auto` of the document as the plan fixes it."""

    strategy: Mapping[str, object]
    micro_size: int | None = None
    accumulation: int | None = None
    activation_checkpointing: str | None = None


def _cut(document: JobSpec, made: Quote, most_micro_size: int | None) -> _Pinned:
    workload = document.workload
    if made.sized is not None:
        best = made.sized.best
        return _Pinned(best.strategy, best.cut.micro_size, best.cut.accumulation, best.cut.checkpointing)
    named = document.strategy.model_dump(mode="json")
    if not isinstance(workload, TrainingWorkload):
        return _Pinned(named)
    strategy = {"kind": "ddp"} if document.strategy.kind == "auto" else named
    batch = batch_plan(workload, made.place.shape.world_size)
    if workload.batch.micro_size == "auto" and most_micro_size is not None:
        batch = with_micro_size(batch, most_micro_size)
    asked = workload.activation_checkpointing
    return _Pinned(strategy, batch.micro_size, batch.accumulation, "none" if asked == "auto" else asked)


def _why(document: JobSpec, chosen: Quote, model: Known | Unknown) -> str:
    if chosen.sized is not None:
        return chosen.sized.why
    if document.strategy.kind == "auto" and isinstance(model, Unknown):
        return f"the simplest strategy; whether it fits was not checked: {model.detail}"
    return "asked for"


def _notes(document: JobSpec, chosen: Quote, model: Known | Unknown) -> list[str]:
    notes = []
    if isinstance(document.workload, TrainingWorkload) and isinstance(model, Unknown):
        notes.append(f"memory, time and cost are not predicted: {model.detail}")
    if isinstance(model, Known) and model.note and chosen.sized is not None:
        notes.append(model.note)
    if (hinted := tight(document, chosen.place.machine)) is not None:
        notes.append(hinted)
    gpu = chosen.place.machine.gpu
    if gpu is not None and not gpu.known:
        notes.append(f"the GPU {gpu.name} is not in the planner's table: its speed is a guess")
    if gpu is not None and not gpu.has_bf16 and getattr(document.workload, "precision", None) == "bf16":
        notes.append(f"{gpu.name} has no bf16 units and computes it in fp32; use fp16")
    if chosen.sized is not None and (words := chosen.sized.best.correction.words):
        run = f"{chosen.sized.best.spread.name} on {'CPUs' if gpu is None else gpu.name}"
        notes.append(f"{words} of {run}")
    if chosen.place.machine.interconnect == "any":
        notes.append("nothing is known of the network between these nodes: a slow one is assumed")
    if chosen.sized is not None and chosen.sized.is_tight:
        notes.append(chosen.sized.why.removeprefix("asked for; "))
    return notes


def _alternative(document: JobSpec, one: Quote, most_micro_size: int | None) -> Alternative:
    offer, cut = one.place.candidate.offer, _cut(document, one, most_micro_size)
    return Alternative(
        instance=one.place.candidate.instance,
        instance_type=offer.instance_type,
        region=offer.region,
        gpu_model=offer.gpu_model,
        capacity=offer.capacity,
        num_nodes=one.place.shape.num_nodes,
        ranks_per_node=one.place.shape.ranks_per_node,
        usd_per_hour=one.place.usd_per_hour,
        strategy=cut.strategy,
        micro_size=cut.micro_size,
        accumulation=cut.accumulation,
        activation_checkpointing=cut.activation_checkpointing,
        prediction=one.prediction,
    )


def _most_telling(rejected: Sequence[Rejection]) -> tuple[Rejection, ...]:
    """Those that nearly were it first: what is merely taken, what has too little memory, what is beyond a limit."""
    order = {"gpu_memory_needed": 1, "cost": 1, "duration": 1, "price": 2}
    ranked = sorted(rejected, key=lambda entry: order.get(entry.reason, 3) if entry.final else 0)
    return tuple(ranked[:MOST_REJECTED])


def _cheapest_first(rejected: Sequence[Rejection], offers: Sequence[Candidate]) -> list[Rejection]:
    """Where all cost too much, the cheapest say by how much."""
    rates = {(one.instance, one.offer.instance_type, one.offer.region): one.offer.price.usd_per_hour for one in offers}
    return sorted(rejected, key=lambda entry: rates.get((entry.instance, entry.instance_type, entry.region), 0.0))


def _refuse(rejected: Sequence[Rejection], facts: Facts, beyond: list[Beyond], misses: Sequence[str]) -> Refusal:
    reasons = Counter(entry.reason for entry in rejected)
    told = _most_telling(rejected)
    waiting = [entry for entry in rejected if not entry.final]
    hopeless = {
        (block.instance, block.detail): block.reason
        for block in facts.blocks
        if block.slug == "blocked" and block.reason in (Reason.PROVIDER_AUTH, Reason.PROVIDER_PAYMENT)
    }
    met = [(entry.instance, entry.detail) for entry in waiting]
    if met and all(one in hopeless for one in met):
        # Only an operator can help, and was told; the job does not sit there until then.
        return Refusal(hopeless[met[0]], met[0][1], final=True, rejected=told, rejected_by=dict(reasons))
    if waiting:
        return Refusal(Reason.NO_CAPACITY, _in_words(waiting), final=False, rejected=told, rejected_by=dict(reasons))
    reason = next((end for slugs, end in _FINAL_REASONS if reasons.keys() & slugs), Reason.NO_CAPACITY)
    words = "; ".join((*misses, _in_words(told) or "no provider offers anything"))
    detail = f"no offer takes this job: {words}"
    limit = {Reason.BUDGET_EXHAUSTED: "cost", Reason.DURATION_EXCEEDED: "duration"}.get(reason, "")
    return Refusal(reason, detail + way_out(beyond, limit), final=True, rejected=told, rejected_by=dict(reasons))


def _in_words(rejected: Sequence[Rejection]) -> str:
    """What is in the way, each thing once, with the first few offers that it stands at."""
    at: dict[str, dict[str, None]] = {}
    for entry in rejected:
        at.setdefault(entry.detail, {})[_name(entry)] = None
    words = [f"{_names(list(names))}: {detail}" for detail, names in at.items()]
    more = f"; and {len(words) - _TOLD} more reasons" if len(words) > _TOLD else ""
    return "; ".join(words[:_TOLD]) + more


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _name(entry: Rejection) -> str:
    return f"{entry.instance} {entry.instance_type}".strip()


def _gangs(document: JobSpec) -> list[GangShape] | str:
    """The gangs to choose from, or what is wrong with the document; refused at the door already."""
    try:
        gangs = gangs_of(document)
    except ValueError as exc:
        return str(exc)
    workload = document.workload
    for gang in gangs:
        if isinstance(workload, TrainingWorkload) and workload.batch.global_size % gang.world_size:
            return f"a global batch of {workload.batch.global_size} does not divide over {gang.world_size} ranks"
    return gangs


def _unknown_provider(document: JobSpec, facts: Facts) -> str | None:
    known = set(facts.instances)
    wanted = document.placement.providers
    if not wanted or known & set(wanted):
        return None
    return f"no provider named {', '.join(wanted)} is configured (there are: {', '.join(sorted(known)) or 'none'})"
