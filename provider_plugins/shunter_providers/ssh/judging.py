"""Whether a host that was looked at can be used, and what it offers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shunter_providers.contract import Availability, Offer, Price
from shunter_providers.local.devices import Gpu, nominal_gib, short_model
from shunter_providers.ssh.settings import HOST_STRIDE, Host


@dataclass(frozen=True, slots=True)
class Found:
    """A host as it is."""

    host: Host
    gpus: Sequence[Gpu]
    cpu_slots: int
    cpus: int
    memory_gib: float
    disk_gib: float


def faults_of(host: Host, facts: Mapping[str, Any], clock_skew_s: float, most_skew_s: float) -> list[str]:
    """Why the host cannot take jobs, each in a sentence with the numbers; empty: it can."""
    faults = acceptance_faults(facts, clock_skew_s, most_skew_s, host.min_disk_gib)
    shown = [short_model(gpu["name"]) for gpu in facts["gpus"]]
    if host.gpus is not None and len(shown) < host.gpus:
        faults.append(f"it shows {len(shown)} GPUs, and the settings say {host.gpus}")
    if host.gpu_model is not None and any(model != host.gpu_model for model in shown):
        faults.append(f"its GPUs are {', '.join(sorted(set(shown)))}, and the settings say {host.gpu_model}")
    if host.memory_gib is not None and facts["memory_gib"] < 0.9 * host.memory_gib:
        faults.append(f"it has {facts['memory_gib']:g} GiB of memory, and the settings say {host.memory_gib:g}")
    return faults


def acceptance_faults(
    facts: Mapping[str, Any], clock_skew_s: float, most_skew_s: float, min_disk_gib: float
) -> list[str]:
    """What no node may have, whoever offers it."""
    faults = []
    if facts["disk_gib"] < min_disk_gib:
        faults.append(f"{facts['disk_gib']:g} GiB of its disk are free, at least {min_disk_gib:g} are needed")
    if abs(clock_skew_s) > most_skew_s:
        late = "behind" if clock_skew_s < 0 else "ahead"
        faults.append(f"its clock is {abs(clock_skew_s):.0f} s {late} (at most {most_skew_s:g} s: does NTP run there?)")
    if facts["gpus"] and facts["usable_gpus"] < len(facts["gpus"]):
        usable, shown = facts["usable_gpus"], len(facts["gpus"])
        faults.append(f"nvidia-smi shows {shown} GPUs, and CUDA gives programs {usable} of them")
    if facts["kills_at_logout"]:
        faults.append(f"logind ends processes at logout: run `loginctl enable-linger {facts['user']}` there")
    return faults


def read_host(host: Host, facts: Mapping[str, Any]) -> Found:
    """What the settings let jobs use of what there is."""
    gpus = [Gpu(gpu["index"], short_model(gpu["name"]), nominal_gib(gpu["mib"] / 1024)) for gpu in facts["gpus"]]
    gpus = gpus[: host.gpus] if host.gpus is not None else gpus
    cpu_slots = host.cpu_slots if host.cpu_slots is not None else (0 if gpus else int(facts["cpus"]))
    return Found(
        host=host,
        gpus=gpus,
        cpu_slots=min(cpu_slots, HOST_STRIDE),
        cpus=int(facts["cpus"]),
        memory_gib=host.memory_gib or float(facts["memory_gib"]),
        disk_gib=float(facts["disk_gib"]),
    )


def make_offers(pool: Sequence[Found]) -> list[Offer]:
    """One offer for each kind of host: its GPUs of one model, or its CPU slots."""
    kinds: dict[tuple[Any, ...], list[tuple[Found, Sequence[int]]]] = {}
    for found in pool:
        for model, memory_gib in sorted({(gpu.model, gpu.memory_gib) for gpu in found.gpus}):
            devices = [gpu.index for gpu in found.gpus if (gpu.model, gpu.memory_gib) == (model, memory_gib)]
            kinds.setdefault((model, memory_gib, len(devices), *_kind(found.host)), []).append((found, devices))
        if found.cpu_slots:
            kinds.setdefault(("", 0.0, found.cpu_slots, *_kind(found.host)), []).append((found, range(found.cpu_slots)))
    offers: list[Offer] = []
    names: dict[tuple[str, str], int] = {}
    for key in sorted(kinds, key=str):
        offer = _offer(key, kinds[key])
        times = names[(offer.instance_type, offer.region)] = names.get((offer.instance_type, offer.region), 0) + 1
        offers.append(offer if times == 1 else _renamed(offer, times))
    return offers


def _kind(host: Host) -> tuple[Any, ...]:
    """Hosts that differ in this are no substitutes for each other."""
    place = (
        host.region,
        host.jurisdiction,
        host.usd_per_hour,
        host.exclusive,
        host.interconnect,
        host.fabric,
        host.network_gbps,
    )
    return (*place, tuple(sorted(host.labels.items())))


def _offer(key: tuple[Any, ...], members: Sequence[tuple[Found, Sequence[int]]]) -> Offer:
    model, memory_gib, size = key[:3]
    first = members[0][0].host
    slots = [found.host.first_slot + device for found, devices in members for device in devices]
    names = [found.host.name for found, _ in sorted(members, key=lambda member: member[0].host.first_slot)]
    return Offer(
        instance_type=f"{size}x{model}" if model else f"cpu-{size}",
        region=first.region,
        jurisdiction=first.jurisdiction,
        price=Price(gpu_usd_per_hour=first.usd_per_hour, billed=False),
        gpu_model=model or None,
        gpus=size if model else 0,
        gpu_memory_gib=memory_gib,
        cpus=min(found.cpus for found, _ in members),
        memory_gib=min(found.memory_gib for found, _ in members),
        disk_gib=min(found.disk_gib for found, _ in members),
        kind="metal",
        availability=Availability.AVAILABLE,
        count=len(members),
        cpu_slots=0 if model else size,
        slot_indices=tuple(sorted(slots)),
        host_stride=HOST_STRIDE,
        host_names=tuple(names),
        exclusive=first.exclusive,
        interconnect=first.interconnect,
        fabric=first.fabric,
        network_gbps=first.network_gbps,
    )


def _renamed(offer: Offer, times: int) -> Offer:
    """Kinds that differ only in price, labels or the like have names of their own all the same."""
    return replace(offer, instance_type=f"{offer.instance_type}-{times}")
