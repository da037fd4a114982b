"""What an offer is to the formulas: one value for all offers of the same hardware, so that each is sized once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shunter_providers.contract import Offer

from shunter_planner.hardware.gpus import Gpu, gpu_of


@dataclass(frozen=True, slots=True)
class Machine:
    """A gang's hardware. Without `gpu_model` its ranks run on CPUs."""

    gpu_model: str | None
    nominal_gib: float
    world: int
    per_node: int
    interconnect: str
    """Empty on one node."""
    network_gbps: float | None
    """Of a node, as the offer says; None on one node."""
    threads: int
    """Of a rank on CPUs; 0 beside a GPU, where they change little."""
    host_gib: float
    """Main memory for each rank; 0: not known."""

    @property
    def gpu(self) -> Gpu | None:
        """By the table."""
        return None if self.gpu_model is None else gpu_of(self.gpu_model, self.nominal_gib)


def machine_of(offer: Offer, slot_kind: str, num_nodes: int, ranks_per_node: int, *, shared_host: bool) -> Machine:
    """The gang on nodes of this offer."""
    on_gpus = slot_kind == "gpu"
    slots = max(1, offer.gpus if on_gpus else offer.cpu_slots) if shared_host else ranks_per_node
    return _machine(
        gpu_model=(offer.gpu_model or "unknown") if on_gpus else None,
        nominal_gib=offer.gpu_memory_gib,
        world=num_nodes * ranks_per_node,
        per_node=ranks_per_node,
        interconnect=offer.interconnect if num_nodes > 1 else "",
        network_gbps=offer.network_gbps if num_nodes > 1 else None,
        threads=0 if on_gpus else max(1, offer.cpus // slots),
        host_gib=_rounded(offer.memory_gib / slots) if on_gpus else offer.memory_gib / slots,
    )


@lru_cache(maxsize=4096)
def _machine(**parts: Any) -> Machine:
    """One object for equal machines: thousands of offers are grouped by it."""
    return Machine(**parts)


def _rounded(host_gib: float) -> float:
    """Down to steps of 32 GiB: beside a GPU only the order of magnitude counts, and alike machines are sized once."""
    return host_gib if host_gib < 32 else 32.0 * (host_gib // 32)
