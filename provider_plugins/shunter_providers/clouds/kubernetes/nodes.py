"""What a cluster's nodes have to offer: their kinds, what is free of each, and in which parts. Pure.

A pod takes a whole node, or half of one, a quarter and so on; what a part costs is its part of the node's price.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import Final, NamedTuple, ParamSpec, TypeVar

from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.kubernetes.pods import NO_PRODUCT, NO_TYPE, PRODUCT_LABELS
from shunter_providers.clouds.kubernetes.settings import KubernetesSettings, Toleration
from shunter_providers.contract import Availability, Offer, Price, ProviderError
from shunter_providers.gpu_names import gpu_model, memory_gib
from shunter_providers.jurisdictions import of_region

_P = ParamSpec("_P")
_T = TypeVar("_T")

_GIB: Final = 1 << 30
# fmt: off
_SUFFIXES: Final[Mapping[str, float]] = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}
_NOMINAL_GIB: Final = (
    4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 144, 180, 186, 192, 256, 288,
)
"""What GPUs are sold with; they show a little less."""
_MEMORY_LABELS: Final = (("nvidia.com/gpu.memory", 1 / 1024), ("gpu.nvidia.com/vram", 1.0), ("amd.com/gpu.vram", 1.0))
"""Where the memory of a GPU stands, and how many GiB one of its units are."""
# fmt: on
_QUANTITY: Final = re.compile(r"(?P<number>[+-]?\d+(\.\d*)?([eE][+-]?\d+)?)(?P<suffix>[numkKMGTPE]i?)?")
_CPU_SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
_SHOWS_AT_LEAST: Final = 0.88
"""A GPU shows no less of its nominal memory than this."""


class Room(NamedTuple):
    """What a node has, or has left, or what a pod takes of it."""

    cpus: float
    memory_gib: float
    gpus: int

    def plus(self, other: Room, times: int = 1) -> Room:
        """Together; `times=-1`: what is left without the other."""
        return Room(
            self.cpus + times * other.cpus,
            self.memory_gib + times * other.memory_gib,
            self.gpus + times * other.gpus,
        )

    def at_least(self, other: Room) -> Room:
        """The larger of each."""
        return Room(max(self.cpus, other.cpus), max(self.memory_gib, other.memory_gib), max(self.gpus, other.gpus))


@dataclass(frozen=True, slots=True)
class Kind:
    """Nodes that are alike."""

    name: str
    region: str
    spot: bool
    product: str
    """Of its GPU; empty: it has none."""
    gpu_memory_gib: float
    whole: Room
    """Of the smallest of them."""
    rdma: bool
    free: Mapping[str, Sequence[Room]]
    """What each has left, by where a gang would stand together."""


class Seen(NamedTuple):
    """A node as it is at the moment."""

    kind: tuple[str, str, bool, int]
    """Name, region, whether it may be taken away, GPUs."""
    labels: Fields
    place: str
    whole: Room
    free: Room
    rdma: bool


PriceOf = Callable[[Kind, str], Price | None]
"""Of a whole node of that kind in that jurisdiction; None: it has none, and is not offered."""


def quantity(text: str) -> float:
    """A number as Kubernetes writes it: `500m`, `16Gi`, `2e3`.

    Raises:
        ValueError: it is none.
    """
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or (found["suffix"] or "") not in _SUFFIXES:
        raise ValueError(f"{text!r} is no quantity")
    return float(found["number"]) * _SUFFIXES[found["suffix"] or ""]


def kinds_of(nodes: Iterable[Fields], pods: Iterable[Fields] | None, settings: KubernetesSettings) -> list[Kind]:
    """The kinds of nodes that jobs may use.

    Args:
        pods: of all namespaces, those that have ended aside; None: nobody may see them, and nothing counts as taken.
    """
    taken = _taken(pods or (), settings.gpu_resource)
    by_kind: dict[tuple[str, str, bool, int], list[Seen]] = defaultdict(list)
    for node in nodes:
        seen = _readable(_see, node, taken, settings)
        if seen is not None:
            by_kind[seen.kind].append(seen)
    return [_kind(name, members) for name, members in sorted(by_kind.items())]


def offers_of(kinds: Iterable[Kind], settings: KubernetesSettings, price_of: PriceOf, *, all_seen: bool) -> list[Offer]:
    """Each kind in its parts.

    Args:
        all_seen: every pod was seen, so that what is free is known.
    """
    found: dict[tuple[str, str, str], Offer] = {}
    for kind in kinds:
        country = of_region(kind.region, settings.jurisdictions)
        whole = price_of(kind, country)
        if whole is None:
            continue
        parts = _parts(kind.whole, settings.share_of_node)
        for part in parts:
            share = part.gpus / kind.whole.gpus if kind.whole.gpus else part.cpus / parts[-1].cpus
            offer = _offer(kind, part, settings, all_seen=all_seen)
            offer = replace(offer, jurisdiction=country, price=_part_of(whole, share))
            found.setdefault((offer.instance_type, offer.region, offer.capacity), offer)
    return list(found.values())


def configured_price(kind: Kind, settings: KubernetesSettings) -> float | None:
    """What the operator says that a whole node costs, USD an hour; None: nothing."""
    tables = [settings.spot_prices, settings.prices] if kind.spot else [settings.prices]
    return next((usd for table in tables if (usd := _named(kind, table)) is not None), None)


def _named(kind: Kind, table: Mapping[str, float]) -> float | None:
    """By the kind's name, else the product of its GPU, else `*`."""
    return next((table[name] for name in (kind.name, kind.product, "*") if name in table), None)


def _offer(kind: Kind, part: Room, settings: KubernetesSettings, *, all_seen: bool) -> Offer:
    counts = {place: sum(_times(room, part) for room in rooms) for place, rooms in kind.free.items()}
    place = max(counts, key=lambda one: counts[one])  # a gang stands in one
    count = counts[place]
    sure = all_seen and not (settings.autoscales and count == 0)
    whole_node = part.gpus == kind.whole.gpus and part.gpus > 0
    return Offer(
        instance_type=f"{part.gpus or int(part.cpus)}x {kind.name}",
        region=kind.region,
        jurisdiction="",
        price=Price(billed=False),
        gpu_model=gpu_model(kind.product) if part.gpus else None,
        gpus=part.gpus,
        gpu_memory_gib=kind.gpu_memory_gib if part.gpus else 0.0,
        cpus=max(1, floor(part.cpus)),
        cpu_slots=0 if part.gpus else int(part.cpus),
        memory_gib=round(part.memory_gib, 2),
        capacity="spot" if kind.spot else "on_demand",
        kind="container",
        availability=_availability(count) if sure else Availability.UNKNOWN,
        count=count if sure and not settings.autoscales else None,
        interconnect="rdma" if kind.rdma and whole_node else "ethernet",
        fabric=place or None,
        network_gbps=_named(kind, settings.network_gbps) if whole_node else None,
    )


def _availability(count: int) -> Availability:
    return Availability.AVAILABLE if count else Availability.NONE


def _parts(whole: Room, share: float) -> list[Room]:
    """Parts by powers of two, and last the whole. What a pod asks for is less than its part, by the share."""
    if whole.gpus:
        sizes = [*(2**power for power in range(7) if 2**power < whole.gpus), whole.gpus]
        return [_gpu_part(whole, gpus, share * gpus / whole.gpus) for gpus in sizes]
    most = floor(whole.cpus * share)
    if most < 1:
        return []
    sizes = [*(size for size in _CPU_SIZES if size < most), most]
    return [Room(cpus, whole.memory_gib * cpus / whole.cpus, 0) for cpus in sizes]


def _gpu_part(whole: Room, gpus: int, part: float) -> Room:
    return Room(max(1, floor(whole.cpus * part)), whole.memory_gib * part, gpus)


def _part_of(whole: Price, share: float) -> Price:
    return replace(whole, gpu_usd_per_hour=round(whole.gpu_usd_per_hour * min(share, 1.0), 6))


def _times(free: Room, part: Room) -> int:
    """How many such pods go into what is free."""
    fits = [free.cpus / part.cpus]
    if part.memory_gib > 0:
        fits.append(free.memory_gib / part.memory_gib)
    if part.gpus:
        fits.append(free.gpus / part.gpus)
    return max(0, floor(min(fits) + 1e-9))


def _kind(name: tuple[str, str, bool, int], members: Sequence[Seen]) -> Kind:
    wholes = [member.whole for member in members]
    smallest = Room(min(one.cpus for one in wholes), min(one.memory_gib for one in wholes), name[3])
    free: dict[str, list[Room]] = defaultdict(list)
    for member in members:
        free[member.place].append(member.free)
    labels = members[0].labels
    product = _product(labels) if smallest.gpus else ""
    return Kind(
        name=name[0],
        region=name[1],
        spot=name[2],
        product=product,
        gpu_memory_gib=_gpu_memory_gib(labels, product) if smallest.gpus else 0.0,
        whole=smallest,
        rdma=all(member.rdma for member in members),
        free=free,
    )


def _see(node: Fields, taken: Mapping[str, Room], settings: KubernetesSettings) -> Seen | None:
    meta, spec, status = node.inside("metadata"), node.inside("spec"), node.inside("status")
    labels = meta.inside("labels")
    if not _is_used(labels, spec, status, settings):
        return None
    has = status.inside("allocatable")
    whole = _room(has, settings.gpu_resource)
    used = taken.get(meta.text("name"), Room(0, 0, 0))
    free = whole.plus(used, times=-1)
    spot = any(labels.text(key, "") == value for key, value in settings.spot_labels.items())
    name = labels.text(settings.type_label, _product(labels) if whole.gpus else NO_TYPE)
    region = labels.text(settings.region_label, settings.region)
    place = labels.text(settings.gang_topology, "") if settings.gang_topology else ""
    rdma = bool(settings.rdma_resource) and quantity(has.text(settings.rdma_resource, "0")) >= 1
    return Seen((name, region, spot, whole.gpus), labels, place, whole, free, rdma)


def _is_used(labels: Fields, spec: Fields, status: Fields, settings: KubernetesSettings) -> bool:
    """Whether a pod of ours may go there at this moment."""
    conditions = status.items("conditions") if "conditions" in status else []
    ready = any(one.text("type", "") == "Ready" and one.text("status", "") == "True" for one in conditions)
    if not ready or spec.flag("unschedulable"):
        return False
    if any(labels.text(key, "") != value for key, value in settings.node_selector.items()):
        return False
    passes = (
        Toleration(key=settings.gpu_resource, effect="NoSchedule"),
        *(Toleration(key=k, operator="Equal", value=v, effect="NoSchedule") for k, v in settings.spot_labels.items()),
        *settings.tolerations,
    )
    taints = spec.items("taints") if "taints" in spec else []
    hard = [one for one in taints if one.text("effect", "") != "PreferNoSchedule"]
    return all(any(_tolerates(one, taint) for one in passes) for taint in hard)


def _tolerates(one: Toleration, taint: Fields) -> bool:
    if one.effect and one.effect != taint.text("effect", ""):
        return False
    if one.key and one.key != taint.text("key", ""):
        return False
    return one.operator == "Exists" or one.value == taint.text("value", "")


def _taken(pods: Iterable[Fields], gpu_resource: str) -> dict[str, Room]:
    """What pods hold, by node."""
    taken: dict[str, Room] = defaultdict(lambda: Room(0, 0, 0))
    for pod in pods:
        node = pod.inside("spec").text("nodeName", "-")
        if node == "-" or pod.inside("status").text("phase", "") in ("Succeeded", "Failed"):
            continue
        held = _readable(_requests, pod.inside("spec"), gpu_resource)
        taken[node] = taken[node].plus(held or Room(0, 0, 0))
    return taken


def _requests(spec: Fields, gpu_resource: str) -> Room:
    """Of all containers together, or of the largest that runs before them."""
    held = Room(0, 0, 0)
    for container in spec.items("containers"):
        held = held.plus(_room(container.inside("resources").inside("requests"), gpu_resource))
    for container in spec.items("initContainers") if "initContainers" in spec else []:
        one = _room(container.inside("resources").inside("requests"), gpu_resource)
        held = held.plus(one) if container.text("restartPolicy", "") == "Always" else held.at_least(one)
    return held.plus(_room(spec.inside("overhead"), gpu_resource))


def _room(quantities: Fields, gpu_resource: str) -> Room:
    return Room(
        cpus=quantity(quantities.text("cpu", "0")),
        memory_gib=quantity(quantities.text("memory", "0")) / _GIB,
        gpus=int(quantity(quantities.text(gpu_resource, "0"))),
    )


def _product(labels: Fields) -> str:
    return next((name for label in PRODUCT_LABELS if (name := labels.text(label, "-")) != "-"), NO_PRODUCT)


def _gpu_memory_gib(labels: Fields, product: str) -> float:
    """As it is sold: by the name, else by the label; 0: nothing tells."""
    named = memory_gib(product)
    if named:
        return named
    for label, unit in _MEMORY_LABELS:
        digits = re.match(r"\d+", labels.text(label, ""))
        if digits:
            shown = int(digits[0]) * unit
            nominal = next((one for one in _NOMINAL_GIB if shown <= one), shown)
            return float(nominal) if shown >= _SHOWS_AT_LEAST * nominal else round(shown, 1)
    return 0.0


def _readable(read: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
    """One object that says nonsense must not hide the others."""
    try:
        return read(*args, **kwargs)
    except (ProviderError, ValueError):
        return None
