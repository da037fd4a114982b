"""Which quote is taken, and which others are worth telling of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from shunter_schemas.job import JobSpec

from shunter_planner.fitting import slots_of
from shunter_planner.hardware.fabrics import rank_of
from shunter_planner.matching import capacity_rank
from shunter_planner.search.quotes import Place, Quote, with_option

ALIKE: Final = 1.01
"""Quotes this close are the same to us: prices that move by a hair move no choice."""
MOST_ALTERNATIVES: Final = 4


def cheapest_of_each_kind(found: Iterable[Place]) -> list[Place]:
    """Of offers of the same hardware only the cheapest can win under any objective: the others are dominated.

    Those that cost alike stay, so that it is not a hair of the price which decides between them.
    """
    kinds: dict[object, list[Place]] = {}
    for one in found:
        kinds.setdefault(_hardware(one), []).append(one)
    kept = []
    for alike in kinds.values():
        most = ALIKE * min(one.usd_per_hour for one in alike)
        kept += [one for one in alike if one.usd_per_hour <= most]
    return kept


def choose(document: JobSpec, quotes: Sequence[Quote]) -> Quote:
    """The best by the objective, among those of the kind of capacity that goes first.

    Of those that are alike the fastest, then the one with fewest nodes, of several the one that is joined best, then
    the one with most free capacity; names last, so that the choice never depends on order.
    """
    first = min(capacity_rank(document, one.place.candidate.offer) for one in quotes)
    rivals = [one for one in quotes if capacity_rank(document, one.place.candidate.offer) == first]
    least = min(_score(document, one) for one in rivals)
    alike = [one for one in rivals if _score(document, one) <= least * ALIKE]
    quickest = min(one.seconds for one in alike)
    alike = [one for one in alike if one.seconds <= quickest * ALIKE]
    return min(alike, key=_by_calm)


def alternatives(document: JobSpec, quotes: Sequence[Quote], chosen: Quote) -> list[Quote]:
    """The best of each other kind: another strategy on the same nodes, then other GPUs, other gangs, other capacity."""
    found: list[Quote] = []
    seen = {_kind(chosen)}
    same_nodes = [with_option(document, chosen, option) for option in chosen.sized.others] if chosen.sized else []
    ranked = sorted(quotes, key=lambda one: (_score(document, one), *_by_calm(one)))
    for one in [*same_nodes, *ranked]:
        if _kind(one) not in seen and not _is_dominated(one, [chosen, *found]):
            seen.add(_kind(one))
            found.append(one)
    return found[:MOST_ALTERNATIVES]


def _score(document: JobSpec, one: Quote) -> float:
    objective = document.placement.objective
    if one.prediction is None:
        return one.place.usd_per_hour
    if objective == "time":
        return one.seconds
    if objective == "balanced":
        return (one.cost + 1e-9) * one.seconds  # doubling the price is worth half the time
    return one.cost


def _kind(one: Quote) -> tuple[object, ...]:
    strategy = one.sized.best.spread.name if one.sized else ""
    return one.place.machine.gpu_model, one.place.machine.world, one.place.candidate.offer.capacity, strategy


def _is_dominated(one: Quote, others: Sequence[Quote]) -> bool:
    """Dearer and slower, on the same kind of GPU and capacity, than one that is told of: of no use to anybody."""
    return any(
        other.cost < one.cost
        and other.seconds < one.seconds
        and other.place.machine.gpu_model == one.place.machine.gpu_model
        for other in others[1:]
    )


def _hardware(one: Place) -> object:
    offer = one.candidate.offer
    # `machine_of` gives one object for equal machines, whose hash need not be taken thousands of times.
    return id(one.machine), offer.capacity, offer.kind, one.candidate.shared_host, offer.price.setup_usd


def _by_calm(one: Quote) -> tuple[int, int, bool, float, str, str, str]:
    offer, nodes = one.place.candidate.offer, one.place.shape.num_nodes
    # Where no group of nodes is known that are joined, a gang may come to lie on several.
    several = nodes > 1
    network, apart = -rank_of(offer.interconnect) if several else 0, several and offer.fabric is None
    return nodes, network, apart, -_free(one), one.place.candidate.instance, offer.instance_type, offer.region


def _free(one: Quote) -> float:
    offer = one.place.candidate.offer
    return float(
        offer.free if offer.free is not None else (offer.count or 0) * slots_of(offer, one.place.shape.slot_kind)
    )
