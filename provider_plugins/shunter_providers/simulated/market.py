"""What the cloud has and asks at a moment: pure functions of the settings, the seed and the time."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

from shunter_providers.contract import Availability, Offer, Price
from shunter_providers.simulated.settings import NodeType, Region, SimulatedSettings

CAPACITIES = ("on_demand", "spot")


def make_offers(settings: SimulatedSettings, taken: Mapping[tuple[str, str], int], at: float) -> list[Offer]:
    """Every type in every region, as it can be had at the time `at`. `taken`: living nodes by (type, region)."""
    return [
        _offer(settings, kind, region, capacity, taken.get((kind.name, region.name), 0), at)
        for kind in settings.types
        for region in settings.regions
        for capacity in CAPACITIES
        if capacity == "on_demand" or kind.spot_usd_per_hour is not None
    ]


def free_nodes(settings: SimulatedSettings, kind: NodeType, region: Region, taken: int, at: float) -> int:
    """Nodes that can still be had: what others have taken comes and goes."""
    others = settings.capacity_swing * _noise(settings, f"capacity {kind.name} {region.name}", at)
    return max(0, math.floor(kind.nodes_per_region * (1.0 - others)) - taken)


def usd_per_hour(settings: SimulatedSettings, kind: NodeType, region: Region, capacity: str, at: float) -> float:
    """The price at a time, in whole hundredths of a cent."""
    base = kind.spot_usd_per_hour if capacity == "spot" else kind.usd_per_hour
    assert base is not None, "offers hold no spot price where there is none"
    drift = settings.price_drift * (2.0 * _noise(settings, f"price {kind.name} {region.name} {capacity}", at) - 1.0)
    return round(base * (1.0 + drift), 4)


def uniform(seed: int, *words: object) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    digest = hashlib.sha256(" ".join(str(word) for word in (seed, *words)).encode()).digest()
    return int.from_bytes(digest[:7]) / (1 << 56)


def _noise(settings: SimulatedSettings, what: str, at: float) -> float:
    return uniform(settings.seed, what, math.floor(at / settings.period_s))


def _offer(settings: SimulatedSettings, kind: NodeType, region: Region, capacity: str, taken: int, at: float) -> Offer:
    free = free_nodes(settings, kind, region, taken, at)
    return Offer(
        instance_type=kind.name,
        region=region.name,
        jurisdiction=region.jurisdiction,
        price=Price(gpu_usd_per_hour=usd_per_hour(settings, kind, region, capacity, at)),
        gpu_model=kind.gpu_model,
        gpus=kind.gpus,
        gpu_memory_gib=kind.gpu_memory_gib,
        cpus=kind.cpus,
        memory_gib=kind.memory_gib,
        disk_gib=kind.disk_gib,
        capacity=capacity,
        availability=Availability.AVAILABLE if free else Availability.NONE,
        count=free,
        cpu_slots=kind.cpu_slots,
        interconnect=kind.interconnect,
        network_gbps=kind.network_gbps,
    )
