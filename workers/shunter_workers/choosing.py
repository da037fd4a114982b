"""Which slots of shared hosts a gang takes, where an offer is made of several hosts. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from shunter_planner import Plan
from shunter_planner.fitting import slots_of
from shunter_providers.contract import Offer


def slots_on_hosts(
    chosen: Plan, free: Sequence[int], ranks: Sequence[int], kept: Sequence[Sequence[int]]
) -> list[tuple[int, ...]]:
    """The slots of each of these nodes, one host a node; an empty tuple for each that finds no host.

    Hosts with the fewest free slots that suffice go first, so that large gaps stay for large jobs. Hosts on which the
    gang has a node already (`kept`: slots of those) take no second one.
    """
    offer = chosen.offer
    by_host: dict[int, list[int]] = defaultdict(list)
    for index in sorted(free):
        by_host[index // offer.host_stride].append(index)
    occupied = {index // offer.host_stride for slots in kept for index in slots}
    needed = slots_of(offer, chosen.slot_kind) if offer.exclusive else chosen.ranks_per_node
    roomy = [host for host, slots in by_host.items() if len(slots) >= needed and host not in occupied]
    roomy.sort(key=lambda host: (len(by_host[host]), host))
    places = [tuple(by_host[host][:needed]) for host in roomy[: len(ranks)]]
    return places + [()] * (len(ranks) - len(places))


def hosts_of(offer: Offer) -> dict[int, str]:
    """Names of the offer's hosts by their number (`slot // host_stride`)."""
    numbers = sorted({index // offer.host_stride for index in offer.slot_indices})
    return dict(zip(numbers, offer.host_names, strict=False))


def devices_of(offer: Offer, slot_indices: Sequence[int]) -> list[int]:
    """The numbers that these slots have on their own host."""
    return [index % offer.host_stride if offer.host_stride else index for index in slot_indices]
