"""The market of Vast.ai: asks (machines that can be rented now), and the offers that are made of them.

An offer is a kind of machine in a country, at the price of the dearest of its cheapest asks: whichever of them a node
becomes, it costs no more.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.contract import Availability, Fault, Intent, Offer, Price, ProviderError, Scope
from shunter_providers.gpu_names import gpu_model

TYPES: Final[Mapping[str, str]] = {"on_demand": "ondemand", "spot": "bid"}
"""Capacities in the vendor's words."""
_HOURS_PER_MONTH: Final = 730
_BAND: Final = 1.1
"""Asks up to this much dearer than the cheapest are of its offer."""
_ANYWHERE: Final = "unknown"
_SPELT: Final[Mapping[str, str]] = {"UK": "GB"}
"""What hosts write for a country's code."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A machine, or a part of one, that can be rented now."""

    id: str
    machine: str
    kind: str
    region: str
    gpus: int
    gpu_name: str
    gpu_memory_gib: float
    cpus: int
    memory_gib: float
    usd_per_hour: float
    """Of the machine, or what is bid for it."""
    disk_usd_per_gib_hour: float


def region_of(geolocation: str) -> str:
    """The country at the end of `California, US`; `unknown` where none is told."""
    country = geolocation.rpartition(",")[2].strip()
    is_code = len(country) == 2 and country.isascii() and country.isalpha() and country.isupper()
    return _SPELT.get(country, country) if is_code else _ANYWHERE


def narrower(offer: Offer, disk_gib: int) -> dict[str, Any]:
    """Filters for the asks of one offer."""
    count, _, name = offer.instance_type.partition("x ")
    body: dict[str, Any] = {
        "gpu_name": {"in": [name]},
        "num_gpus": {"eq": int(count) if count.isdigit() else offer.gpus},
        "disk_space": {"gte": disk_gib},
        "limit": 200,
    }
    if offer.region != _ANYWHERE:
        body["geolocation"] = {
            "in": [offer.region, *(spelling for spelling, code in _SPELT.items() if code == offer.region)]
        }
    return body


def readable(found: Sequence[Fields], bid_factor: float | None) -> list[Ask]:
    """The asks of an answer; one that the vendor garbles hides no other.

    Args:
        bid_factor: what is bid as a multiple of the least that wins; None: on demand.
    """
    asks = []
    for one in found:
        try:
            asks.append(_ask(one, bid_factor))
        except ProviderError:
            continue
    return asks


def offers_of(capacity: str, market: Sequence[Ask], disk_gib: int) -> Iterator[Offer]:
    """One for each kind of machine in each country."""
    for asks in _kinds(market):
        yield _offer(capacity, asks, disk_gib)


def chosen(market: Sequence[Ask], intent: Intent, tried: Collection[str]) -> Ask:
    """The cheapest that is of the offer and no dearer; those of another country are never taken, whatever the API says.

    Args:
        tried: asks that were just taken for other nodes; they come last.

    Raises:
        ProviderError: `NO_CAPACITY`: there is none left.
    """
    offer = intent.offer
    fits = [
        ask
        for ask in market
        if (ask.kind, ask.region) == (offer.instance_type, offer.region)
        and ask.usd_per_hour <= offer.price.gpu_usd_per_hour * 1.0001
        and ask.machine not in intent.avoid
    ]
    if not fits:
        most = f"{offer.price.gpu_usd_per_hour:.4g} USD an hour"
        detail = f"nobody lets a {offer.instance_type} in {offer.region} for {most} now"
        raise ProviderError(Fault.NO_CAPACITY, detail, scope=Scope.OFFER)
    return min(fits, key=lambda ask: (ask.id in tried, ask.usd_per_hour))


def _ask(one: Fields, bid_factor: float | None) -> Ask:
    gpus, name = one.count("num_gpus"), one.text("gpu_name")
    share = one.number("cpu_cores_effective") / max(one.number("cpu_cores"), 1.0)
    usd = one.money("dph_base") if bid_factor is None else _rounded_up(one.money("min_bid") * bid_factor)
    return Ask(
        id=one.text("id"),
        machine=one.text("machine_id"),
        kind=f"{gpus}x {name}",
        region=region_of(one.text("geolocation", "-")),
        gpus=gpus,
        gpu_name=name,
        gpu_memory_gib=round(one.number("gpu_ram") / 1024),
        cpus=int(one.number("cpu_cores_effective")),
        memory_gib=round(one.number("cpu_ram") * min(share, 1.0) / 1024, 1),
        usd_per_hour=usd,
        disk_usd_per_gib_hour=one.number("storage_cost") / _HOURS_PER_MONTH,
    )


def _rounded_up(usd: float) -> float:
    return math.ceil(round(usd * 1e4, 6)) / 1e4


def _kinds(market: Sequence[Ask]) -> Iterator[list[Ask]]:
    """Machines of one kind in one country that cost about the same, the cheapest first."""
    kinds: dict[tuple[str, str], list[Ask]] = {}
    for ask in sorted((ask for ask in market if ask.gpus), key=_cost):
        kinds.setdefault((ask.kind, ask.region), []).append(ask)
    for asks in kinds.values():
        yield [ask for ask in asks if ask.usd_per_hour <= asks[0].usd_per_hour * _BAND]


def _cost(ask: Ask) -> float:
    return ask.usd_per_hour


def _offer(capacity: str, asks: Sequence[Ask], disk_gib: int) -> Offer:
    """What holds for the least of them."""
    first = asks[0]
    disk_usd = disk_gib * max(ask.disk_usd_per_gib_hour for ask in asks)
    return Offer(
        instance_type=first.kind,
        region=first.region,
        jurisdiction="" if first.region == _ANYWHERE else first.region,
        price=Price(round(max(ask.usd_per_hour for ask in asks), 6), round(disk_usd, 6)),
        gpu_model=gpu_model(first.gpu_name),
        gpus=first.gpus,
        gpu_memory_gib=min(ask.gpu_memory_gib for ask in asks),
        cpus=min(ask.cpus for ask in asks),
        memory_gib=min(ask.memory_gib for ask in asks),
        disk_gib=disk_gib,
        capacity=capacity,
        kind="container",
        availability=Availability.AVAILABLE,
        count=len({ask.machine for ask in asks}),
        interconnect="none",
    )
