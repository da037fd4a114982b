"""What this machine has: cores, memory, GPUs; and the offers made of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from shunter_providers.contract import Availability, Offer, Price
from shunter_providers.local.settings import LocalSettings

_GIB = 1024**3
_QUERY = ("--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits")
_NOMINAL_GIB = (2, 4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 180, 192, 288)
_OWN_HARDWARE = Price(billed=False)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of this machine."""

    index: int
    model: str
    memory_gib: float
    """By the nominal size of the card: what the driver shows is a few percent less."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to share out."""

    cpus: int
    memory_gib: float
    disk_gib: float
    gpus: Sequence[Gpu]


def look_at_machine(folder: str) -> Machine:
    """This machine as it is; `folder` lies on the disk that the nodes use. Blocks for the time of one `nvidia-smi`."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        memory_gib=round(memory, 1),
        disk_gib=round(shutil.disk_usage(folder).free / _GIB, 1),
        gpus=_visible_gpus(),
    )


def make_offers(machine: Machine, settings: LocalSettings) -> list[Offer]:
    """One offer for CPU ranks, and one for each GPU model."""
    whole = Offer(
        instance_type="cpu",
        region=settings.region,
        jurisdiction=settings.jurisdiction,
        price=_OWN_HARDWARE,
        cpus=machine.cpus,
        memory_gib=machine.memory_gib,
        disk_gib=machine.disk_gib,
        kind="metal",
        availability=Availability.AVAILABLE,
    )
    offers = [replace(whole, cpu_slots=settings.cpu_slots)]
    gpus = sorted(machine.gpus, key=_kind_of) if settings.use_gpus else []
    for (model, memory_gib), group in groupby(gpus, key=_kind_of):
        indices = tuple(sorted(gpu.index for gpu in group))
        offers.append(
            replace(
                whole,
                instance_type=f"gpu-{model}",
                gpu_model=model,
                gpus=len(indices),
                gpu_memory_gib=memory_gib,
                slot_indices=indices,
            )
        )
    return offers


def parse_gpus(csv: str) -> list[Gpu]:
    """The lines of `nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader,nounits`."""
    gpus = []
    for line in csv.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[0].isdigit() and parts[2].isdigit():
            gpus.append(Gpu(int(parts[0]), short_model(parts[1]), nominal_gib(int(parts[2]) / 1024)))
    return gpus


def _kind_of(gpu: Gpu) -> tuple[str, float]:
    return gpu.model, gpu.memory_gib


def _visible_gpus() -> list[Gpu]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        shown = subprocess.run((program, *_QUERY), capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpus(shown.stdout) if shown.returncode == 0 else []


def short_model(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` and `NVIDIA GeForce RTX 4090` as people write them: `A100`, `RTX-4090`."""
    words = [word for word in name.split() if word not in ("NVIDIA", "Tesla", "GeForce", "Quadro")]
    head = words[0] if words else name
    if head in ("RTX", "GTX", "TITAN") and len(words) > 1:
        return "-".join(word for word in words if word not in ("Generation", "Laptop", "GPU"))
    return head.split("-")[0]


def nominal_gib(shown_gib: float) -> float:
    for nominal in _NOMINAL_GIB:
        if 0.9 * nominal <= shown_gib <= nominal:
            return float(nominal)
    return round(shown_gib, 1)
