"""Whether an offer is what the document asks for, one criterion a function: None, or what is wrong in numbers.

Everything here is final: an offer that is of the wrong kind today is of the wrong kind tomorrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from shunter_providers.contract import Offer
from shunter_schemas.job import JobSpec

from shunter_planner.values import Candidate, Rejection

_Criterion = Callable[[JobSpec, Candidate], str | None]

# Members of the European Union by ISO 3166; the EEA adds three.
# fmt: off
_EU = frozenset({
    "AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU",
    "IE", "IT", "LT", "LU", "LV", "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK",
})
# fmt: on
_EEA = _EU | {"IS", "LI", "NO"}

_CAPACITIES = {
    "on_demand": ("on_demand",),
    "spot": ("spot",),
    "reserved": ("reserved",),
    "spot_then_on_demand": ("spot", "on_demand"),
}


def mismatch(document: JobSpec, candidate: Candidate) -> Rejection | None:
    """The first criterion that the offer fails."""
    for reason, criterion in _CRITERIA:
        detail = criterion(document, candidate)
        if detail is not None:
            offer = candidate.offer
            return Rejection(candidate.instance, offer.instance_type, offer.region, reason, detail, final=True)
    return None


def capacity_rank(document: JobSpec, offer: Offer) -> int:
    """Which kind of capacity goes first: 0 before 1."""
    return _CAPACITIES[document.resources.capacity].index(offer.capacity)


def is_gpu_model(wanted: str, offer: Offer) -> bool:
    """`H100` takes any H100; `A100-80GB` one of that nominal memory; case, spaces and hyphens do not matter."""
    if offer.gpu_model is None:
        return False
    model, memory_gib = wanted, None
    if found := re.fullmatch(r"(.+?)[ _-]?(\d+) ?GB", wanted, re.IGNORECASE):
        model, memory_gib = found[1], float(found[2])
    same = _letters(model) == _letters(offer.gpu_model) or _letters(wanted) == _letters(offer.gpu_model)
    return same and (memory_gib is None or abs(offer.gpu_memory_gib - memory_gib) < 1.0)


def in_jurisdiction(wanted: Sequence[str], jurisdiction: str) -> bool:
    """Whether a place lies in one of the wanted ones. An unknown place lies in none."""
    members = {"EU": _EU | {"EU"}, "EEA": _EEA | {"EU", "EEA"}}
    return any(jurisdiction in members.get(place, {place}) for place in wanted)


def _provider(document: JobSpec, candidate: Candidate) -> str | None:
    wanted = document.placement.providers
    if not wanted or candidate.instance in wanted:
        return None
    return f"not one of the placement's providers ({', '.join(wanted)})"


def _image(document: JobSpec, candidate: Candidate) -> str | None:
    if document.environment.image is None or candidate.runs_images:
        return None
    return "its nodes run no container image (environment.image)"


def _region(document: JobSpec, candidate: Candidate) -> str | None:
    wanted = document.placement.regions
    if not wanted or candidate.offer.region in wanted:
        return None
    return f"region {candidate.offer.region} is not one of {', '.join(wanted)}"


def _jurisdiction(document: JobSpec, candidate: Candidate) -> str | None:
    wanted = document.placement.jurisdictions
    if not wanted or in_jurisdiction(wanted, candidate.offer.jurisdiction):
        return None
    return f"jurisdiction {candidate.offer.jurisdiction or 'unknown'} is not in {', '.join(wanted)}"


def _device(document: JobSpec, candidate: Candidate) -> str | None:
    if document.resources.cpu_processes is not None:
        return None if candidate.offer.cpu_slots else "takes no CPU ranks"
    return None if candidate.offer.gpus else "has no GPU"


def _gpu_model(document: JobSpec, candidate: Candidate) -> str | None:
    wanted = document.resources.gpu_models
    if not wanted or any(is_gpu_model(model, candidate.offer) for model in wanted):
        return None
    offer = candidate.offer
    return f"{offer.gpu_model} of {offer.gpu_memory_gib:g} GiB is not one of {', '.join(wanted)}"


def _gpu_memory(document: JobSpec, candidate: Candidate) -> str | None:
    return _at_least("GiB of memory a GPU", document.resources.min_gpu_memory_gib, candidate.offer.gpu_memory_gib)


def _cpus(document: JobSpec, candidate: Candidate) -> str | None:
    offer = candidate.offer
    return _at_least("CPUs a GPU", document.resources.min_cpus_per_gpu, offer.cpus / max(1, offer.gpus))


def _memory(document: JobSpec, candidate: Candidate) -> str | None:
    offer = candidate.offer
    return _at_least("GiB a GPU", document.resources.min_memory_gib_per_gpu, offer.memory_gib / max(1, offer.gpus))


def _disk(document: JobSpec, candidate: Candidate) -> str | None:
    wanted, disk_gib = document.resources.disk_gib, candidate.offer.disk_gib
    # Where the offer says 0 the disk is made to order.
    return _at_least("GiB of disk", wanted, disk_gib) if isinstance(wanted, float | int) and disk_gib else None


def _capacity(document: JobSpec, candidate: Candidate) -> str | None:
    wanted = document.resources.capacity
    if candidate.offer.capacity in _CAPACITIES[wanted]:
        return None
    return f"capacity is {candidate.offer.capacity}, not {wanted}"


def _at_least(what: str, wanted: float | None, offered: float) -> str | None:
    return None if wanted is None or offered >= wanted else f"{offered:g} {what}, {wanted:g} needed"


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_CRITERIA: Sequence[tuple[str, _Criterion]] = (
    ("provider", _provider),
    ("image", _image),
    ("region", _region),
    ("jurisdiction", _jurisdiction),
    ("device", _device),
    ("gpu_model", _gpu_model),
    ("gpu_memory", _gpu_memory),
    ("cpus", _cpus),
    ("memory", _memory),
    ("disk", _disk),
    ("capacity", _capacity),
)
