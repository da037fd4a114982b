"""Whether the gang goes onto an offer: how many nodes, and whether they are there now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shunter_providers.contract import Availability, Offer
from shunter_schemas.batching import dividing_worlds
from shunter_schemas.job import JobSpec
from shunter_schemas.resources import GangShape, GpuRange
from shunter_schemas.training import TrainingWorkload

from shunter_planner.hardware.fabrics import rank_of
from shunter_planner.values import Candidate, Rejection

_NOT_TO_BE_HAD: Final[Mapping[Availability, str]] = {
    Availability.NONE: "the provider has none of it at the moment",
    Availability.NO_QUOTA: "the account's quota for it is used up: ask the provider for a higher one",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """How the ranks lie on the nodes of one offer."""

    num_nodes: int
    ranks_per_node: int
    slot_kind: str

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.num_nodes * self.ranks_per_node


def gangs_of(document: JobSpec) -> list[GangShape]:
    """Every gang that the document leaves to choose from; one, unless it gives a range of GPUs.

    Of a range: the numbers over which the global batch divides, for a script the powers of two and both ends.

    Raises:
        ValueError: the document contradicts itself; `shunter_schemas.checks` refuses such documents.
    """
    resources, workload = document.resources, document.workload
    if not isinstance(resources.gpus, GpuRange):
        return [resources.gang()]
    least, most = resources.gpus.min, resources.gpus.max
    if isinstance(workload, TrainingWorkload):
        worlds = dividing_worlds(workload.batch, least, most)
    else:
        worlds = sorted({least, most, *(2**power for power in range(17) if least <= 2**power <= most)})
    if not worlds:
        assert isinstance(workload, TrainingWorkload)
        size = workload.batch.global_size
        raise ValueError(f"a global batch of {size} divides over no number of GPUs from {least} to {most}")
    group = getattr(document.strategy, "shard_size", None)
    parts = [part for part in (resources.nodes, resources.gpus_per_node, group) if isinstance(part, int)]
    fitting = [size for size in worlds if all(size % part == 0 for part in parts)]
    if not fitting:
        raise ValueError(f"no number of GPUs from {least} to {most} divides by {' and '.join(map(str, parts))}")
    return [resources.model_copy(update={"gpus": size}).gang() for size in fitting]


def fit(document: JobSpec, candidate: Candidate, wanted: GangShape) -> Shape | Rejection:
    """The gang's shape on this offer, or why it does not go there (now)."""
    offer = candidate.offer
    shape = _shape(document, candidate, wanted)
    if isinstance(shape, Rejection):
        return shape
    too_dear = _rate_above_limit(document, candidate, shape)
    if too_dear is not None:
        return too_dear
    if candidate.shared_host:
        return _on_shared_host(candidate, shape)
    if offer.availability in _NOT_TO_BE_HAD:
        return _waiting(candidate, str(offer.availability), _NOT_TO_BE_HAD[offer.availability])
    if offer.count is not None and offer.count < shape.num_nodes:
        return _waiting(candidate, "none", f"{offer.count} nodes to be had, {shape.num_nodes} needed")
    return shape


def slots_of(offer: Offer, kind: str) -> int:
    """Ranks that one node takes."""
    return offer.gpus if kind == "gpu" else offer.cpu_slots


def _shape(document: JobSpec, candidate: Candidate, wanted: GangShape) -> Shape | Rejection:
    kind = "cpu" if document.resources.cpu_processes is not None else "gpu"
    per_node, unit = slots_of(candidate.offer, kind), "CPU ranks" if kind == "cpu" else "GPUs"
    if wanted.num_nodes is not None and wanted.ranks_per_node is not None:
        shape = Shape(wanted.num_nodes, wanted.ranks_per_node, kind)
    elif wanted.world_size <= per_node:
        shape = Shape(1, wanted.world_size, kind)
    elif wanted.world_size % per_node == 0:
        shape = Shape(wanted.world_size // per_node, per_node, kind)
    else:
        detail = f"{wanted.world_size} {unit} do not divide over nodes of {per_node}"
        return _never(candidate, "too_small", detail)
    if shape.ranks_per_node > per_node:
        return _never(candidate, "too_small", f"{shape.ranks_per_node} {unit} a node needed, a node has {per_node}")
    hosts = candidate.offer.count or 1
    if candidate.offer.host_stride and shape.num_nodes > hosts:
        # Hosts come back: one that does not answer at the moment is no reason to refuse the job for good.
        return _waiting(candidate, "none", f"{shape.num_nodes} hosts needed, {hosts} can be used at the moment")
    if candidate.shared_host and not candidate.offer.host_stride and shape.world_size > per_node:
        return _never(candidate, "too_small", f"{shape.world_size} {unit} needed, there are {per_node} in all")
    if candidate.shared_host and not candidate.offer.host_stride and kind == "cpu" and shape.num_nodes > 1:
        detail = f"{shape.num_nodes} nodes needed, and this is one machine (leave out resources.nodes)"
        return _never(candidate, "too_small", detail)
    apart = _not_joined(document, candidate) if shape.num_nodes > 1 else None
    return shape if apart is None else _never(candidate, "interconnect", apart)


def _not_joined(document: JobSpec, candidate: Candidate) -> str | None:
    """Why the network between nodes of this offer will not do."""
    joined, wanted = candidate.offer.interconnect, document.resources.interconnect
    if joined == "none":
        return "nodes cannot reach each other, and the gang needs several"
    on_one_machine = candidate.shared_host and not candidate.offer.host_stride
    if rank_of(joined) >= rank_of(wanted) or (wanted == "ethernet" and on_one_machine):
        return None
    known = f"nodes are joined by {joined}" if joined != "any" else "nothing is known of the network between nodes"
    return f"{known}, {wanted} needed (resources.interconnect)"


def _on_shared_host(candidate: Candidate, shape: Shape) -> Shape | Rejection:
    per_node = slots_of(candidate.offer, shape.slot_kind)
    if candidate.offer.host_stride:
        return _on_several_hosts(candidate, shape, per_node)
    free = per_node if candidate.offer.free is None else candidate.offer.free
    if shape.world_size <= free:
        return shape
    unit = "CPU slots" if shape.slot_kind == "cpu" else "GPUs"
    return _waiting(candidate, "slots_taken", f"{free} of {per_node} {unit} are free, {shape.world_size} needed")


def _on_several_hosts(candidate: Candidate, shape: Shape, per_node: int) -> Shape | Rejection:
    """Each node of the gang needs a host of its own with enough free slots: all of them where hosts are exclusive."""
    offer = candidate.offer
    needed = per_node if offer.exclusive else shape.ranks_per_node
    hosts = offer.count or 1
    roomy = sum(free >= needed for free in offer.free_on_hosts or [per_node] * hosts)
    if roomy >= shape.num_nodes:
        return shape
    unit = "CPU slots" if shape.slot_kind == "cpu" else "GPUs"
    told = f"{roomy} of {hosts} hosts have {needed} free {unit}, {shape.num_nodes} such hosts are needed"
    return _waiting(candidate, "slots_taken", told)


def _rate_above_limit(document: JobSpec, candidate: Candidate, shape: Shape) -> Rejection | None:
    limit, rate = document.limits.max_usd_per_hour, shape.num_nodes * candidate.offer.price.usd_per_hour
    if limit is None or rate <= limit:
        return None
    return _never(candidate, "price", f"{rate:.2f} USD an hour, at most {limit:.2f} allowed (limits.max_usd_per_hour)")


def _never(candidate: Candidate, reason: str, detail: str) -> Rejection:
    return Rejection(
        candidate.instance, candidate.offer.instance_type, candidate.offer.region, reason, detail, final=True
    )


def _waiting(candidate: Candidate, reason: str, detail: str) -> Rejection:
    return Rejection(
        candidate.instance, candidate.offer.instance_type, candidate.offer.region, reason, detail, final=False
    )
