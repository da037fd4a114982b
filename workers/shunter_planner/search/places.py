"""Where the gang could go: every offer that the document allows, without those that cannot win under any objective."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from shunter_schemas.job import JobSpec
from shunter_schemas.resources import GangShape

from shunter_planner.fitting import Shape, fit
from shunter_planner.matching import mismatch
from shunter_planner.search.choice import ALIKE
from shunter_planner.search.machines import Machine, machine_of
from shunter_planner.search.quotes import Place
from shunter_planner.values import Block, Candidate, Facts, Rejection

_Lying = Sequence[tuple[Shape, Machine]]
"""How the gang can lie on an offer."""
_ROUNDING: Final = 1.0 + 1e-9
"""What is left out here is what `cheapest_of_each_kind` would leave out, whatever order products are rounded in."""


class _Found(NamedTuple):
    candidate: Candidate
    hardware: Hashable
    lying: _Lying


def places_of(
    document: JobSpec, offers: Sequence[Candidate], facts: Facts, gangs: Sequence[GangShape], rejected: list[Rejection]
) -> Iterator[Place]:
    """In the order of the offers; what is in the way elsewhere is added to `rejected`.

    Of offers of the same hardware those that are dearer than the cheapest by more than `ALIKE` are left out before
    anything is computed for them: on the same nodes the cheapest is as fast, so they are dominated.
    """
    found: list[_Found] = []
    least: dict[Hashable, float] = {}
    judge = _Judge(document, facts.blocks, gangs)
    for candidate in offers:
        one = judge.of(candidate)
        if isinstance(one, Rejection):
            rejected.append(one)
            continue
        found.append(one)
        price = candidate.offer.price.usd_per_hour
        least[one.hardware] = min(price, least.get(one.hardware, price))
    seen: set[Hashable] = set()
    for candidate, hardware, lying in found:
        # The first of each hardware stays whatever it costs: the order in which kinds are told goes by it.
        if candidate.offer.price.usd_per_hour <= ALIKE * _ROUNDING * least[hardware] or hardware not in seen:
            seen.add(hardware)
            for shape, machine in lying:
                yield Place(candidate, shape, machine)


class _Judge:
    """Whether the gang goes onto offers. How it lies is found once for all offers of the same hardware."""

    def __init__(self, document: JobSpec, blocks: Sequence[Block], gangs: Sequence[GangShape]) -> None:
        self._document, self._blocks, self._gangs = document, blocks, gangs
        self._dearest = document.limits.max_usd_per_hour
        self._lying: dict[Hashable, tuple[float, _Lying]] = {}
        """With the price at which it was found: what is dearer lies in none but these ways."""

    def of(self, candidate: Candidate) -> _Found | Rejection:
        """How it lies there, or what is in the way."""
        if (rejection := mismatch(self._document, candidate)) is not None:
            return rejection
        hardware, offer = _hardware(candidate), candidate.offer
        lying = self._known(hardware, offer.price.usd_per_hour)
        if not lying:
            judged = self._fit(candidate)
            if isinstance(judged, Rejection):
                return judged
            lying = judged
            self._lying[hardware] = offer.price.usd_per_hour, lying
        if block := next((block for block in self._blocks if block.covers(candidate)), None):
            return Rejection(
                candidate.instance, offer.instance_type, offer.region, block.slug, block.detail, final=False
            )
        return _Found(candidate, hardware, lying)

    def _known(self, hardware: Hashable, usd_per_hour: float) -> _Lying:
        """What is known of such hardware at this price; nothing: it has to be found out."""
        price, lying = self._lying.get(hardware, (0.0, ()))
        if self._dearest is None:
            return lying
        if usd_per_hour < price:
            return ()
        return [one for one in lying if one[0].num_nodes * usd_per_hour <= self._dearest]

    def _fit(self, candidate: Candidate) -> _Lying | Rejection:
        verdicts = [fit(self._document, candidate, gang) for gang in self._gangs]
        shapes = [verdict for verdict in verdicts if not isinstance(verdict, Rejection)]
        if not shapes:
            refusals = [verdict for verdict in verdicts if isinstance(verdict, Rejection)]
            return next((verdict for verdict in refusals if not verdict.final), refusals[0])
        offer, shared = candidate.offer, candidate.shared_host
        return [
            (
                shape,
                machine_of(offer, shape.slot_kind, shape.num_nodes, shape.ranks_per_node, shared_host=shared),
            )
            for shape in shapes
        ]


def _hardware(candidate: Candidate) -> Hashable:
    """Equal for offers on which the gang lies alike and runs alike, whatever they cost an hour."""
    offer = candidate.offer
    if candidate.shared_host:
        return id(candidate)  # what is free there is its own
    return (
        offer.gpu_model,
        offer.gpu_memory_gib,
        offer.gpus,
        offer.cpu_slots,
        offer.cpus,
        offer.memory_gib,
        offer.interconnect,
        offer.network_gbps,
        offer.count,
        offer.host_stride,
        offer.availability,
        offer.capacity,
        offer.kind,
        offer.price.setup_usd,
    )
