"""Judges the muster of a gang: where each node is reached, or who is not, and whether nodes are what was offered.

Pure. What nodes say is data of strangers: it is cleaned before it goes into a message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shunter_providers.gpu_names import is_of
from shunter_schemas.muster import Muster, Reach
from shunter_schemas.node_sync import Phase
from shunter_store.node.clocks import ahead
from shunter_store.node.ledger import NodeRow
from shunter_store.node.musters import addresses_of, muster_of
from shunter_store.report.texts import clean_text

from shunter_workers.view import View

SHORT_OF_MEMORY: Final = 0.88
"""A GPU shows less than its nominal memory, but not less than this share of it."""
SKEW_S: Final = 5.0
"""A clock that is wrong by more is told of; nothing is refused for it."""
_LONGEST_TEXT: Final = 400
_SHOWN: Final = 3
_OPEN: Final = (
    "nodes have to reach each other on TCP ports 20000-32000 and on those for outgoing connections (32768-60999)"
)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the nodes of a gang are for each other."""

    addresses: Mapping[str, str]
    """By node id."""
    interfaces: Mapping[str, str | None]
    """By node id: the interface that has the address, where it is known."""
    master_port: int


@dataclass(frozen=True, slots=True)
class Unmet:
    """Who spoils the gathering, and how."""

    node: NodeRow
    detail: str


def gathers(node: NodeRow, generation: int) -> bool:
    """Whether the node was told to gather for this generation."""
    return node.desired_phase == Phase.MUSTER and node.desired_generation == generation


def judge(members: Sequence[NodeRow], generation: int) -> Meeting | Unmet | None:
    """What the gathering came to; None: calls are still under way."""
    gang = sorted(members, key=lambda node: node.rank)
    musters = {node.id: muster for node in gang if (muster := muster_of(node.status, generation)) is not None}
    if len(musters) < len(gang) or not all(_has_called_all(musters[node.id], node, musters, gang) for node in gang):
        return None
    addresses = {node.id: _common_address(node, musters, gang) for node in gang}
    if None in addresses.values():
        return _blame(musters, gang, [node for node in gang if addresses[node.id] is None])
    found = {node_id: address for node_id, address in addresses.items() if address is not None}
    interfaces = {node.id: _interface(node, musters[node.id], found[node.id]) for node in gang}
    return Meeting(found, interfaces, musters[gang[0].id].rendezvous_port)


def missing(members: Sequence[NodeRow], generation: int) -> list[NodeRow]:
    """Nodes that have not opened their ports yet."""
    return [node for node in members if muster_of(node.status, generation) is None]


def impostor(view: View, members: Sequence[NodeRow]) -> Unmet | None:
    """The first node that is not what its offer says, by what it reports of itself."""
    for node in members:
        told = _lie(view, node)
        if told is not None and view.capabilities_of(node).verifies:
            return Unmet(node, f"node {node.rank} is not what was offered: {clean_text(told, _LONGEST_TEXT)}")
    return None


def tell(members: Sequence[NodeRow], meeting: Meeting, generation: int) -> dict[str, Any]:
    """The data of the event `gang.met`: who is reached where, and what goes through between them."""
    gang = sorted(members, key=lambda node: node.rank)
    nodes = [
        {
            "node_rank": node.rank,
            "address": meeting.addresses[node.id],
            "interface": meeting.interfaces[node.id],
            "clock_skew_s": round(skew_s(node), 3),
        }
        for node in gang
    ]
    return {"generation": generation, "nodes": nodes, "links": list(_links(gang, generation))}


def skew_s(node: NodeRow) -> float:
    """How far the node's clock was ahead at its last exchange; 0 for less than a second."""
    heard_at: datetime | None = node.last_sync_at
    return 0.0 if heard_at is None else ahead(node.status.get("clock"), heard_at).total_seconds()


def _links(gang: Sequence[NodeRow], generation: int) -> Iterator[dict[str, Any]]:
    """Around the ring. While nodes were still missing, others may have been measured too."""
    for node in gang:
        muster, after = muster_of(node.status, generation), (node.rank + 1) % len(gang)
        for reach in muster.reached if muster is not None else ():
            if reach.gbit_per_s is not None and reach.node_rank == after:
                measured = {"rtt_ms": reach.rtt_ms, "gbit_per_s": reach.gbit_per_s}
                yield {"from": node.rank, "to": reach.node_rank, **measured}


def _has_called_all(muster: Muster, node: NodeRow, musters: Mapping[str, Muster], gang: Sequence[NodeRow]) -> bool:
    called = {reach.ticket for reach in muster.reached}
    return all(musters[other.id].ticket in called for other in gang if other is not node)


def _reach(muster: Muster, ticket: str) -> Reach:
    return next(reach for reach in muster.reached if reach.ticket == ticket)


def _common_address(node: NodeRow, musters: Mapping[str, Muster], gang: Sequence[NodeRow]) -> str | None:
    """The best address on which every other node reaches this one."""
    own = musters[node.id]
    answers = [_reach(musters[other.id], own.ticket).answers for other in gang if other is not node]
    good = (address for address in addresses_of(own, node.addresses) if all(one.get(address) == "" for one in answers))
    return next(good, None)


def _interface(node: NodeRow, muster: Muster, address: str) -> str | None:
    if address == node.addresses.get("private") and node.addresses.get("interface"):
        return node.addresses["interface"]
    return next((endpoint.interface for endpoint in muster.endpoints if endpoint.address == address), None)


def _blame(musters: Mapping[str, Muster], gang: Sequence[NodeRow], unreached: Sequence[NodeRow]) -> Unmet:
    """The node that most failed calls have in common; between equals one that is not reached, and not the master."""
    failed = [
        (caller, target, answers)
        for target in unreached
        for caller in gang
        if caller is not target and "" not in (answers := _answers(musters, caller, target)).values()
    ]
    if not failed:  # each is reached somewhere, but not by all in the same place
        target = unreached[-1]
        return Unmet(target, f"node {target.rank} has no address on which every other node reaches it; {_OPEN}")
    counts = Counter(node.id for caller, target, _ in failed for node in (caller, target))
    targets = {target.id for _, target, _ in failed}
    guilty = max(gang, key=lambda node: (counts[node.id], node.id in targets, node.rank))
    about = [one for one in failed if guilty in one[:2]]
    told = [_sentence(musters, *one) for one in about[:_SHOWN]]
    more = [f"and {len(about) - _SHOWN} calls more failed"] if len(about) > _SHOWN else []
    return Unmet(guilty, "; ".join([*told, *more, _OPEN]))


def _answers(musters: Mapping[str, Muster], caller: NodeRow, target: NodeRow) -> Mapping[str, str]:
    return _reach(musters[caller.id], musters[target.id].ticket).answers


def _sentence(musters: Mapping[str, Muster], caller: NodeRow, target: NodeRow, answers: Mapping[str, str]) -> str:
    ours = addresses_of(musters[caller.id], caller.addresses)
    where = f" ({ours[0]})" if ours else ""
    faults = ", ".join(f"{address} {clean_text(fault, 200)}" for address, fault in answers.items())
    return f"node {caller.rank}{where} cannot reach node {target.rank}: {faults or 'it has no address'}"


def _lie(view: View, node: NodeRow) -> str | None:
    """What is wrong, in numbers; None: nothing that the node's own report would show."""
    boot, offer = node.boot, node.offer
    if boot is None:
        return None
    if view.plan.slot_kind == "gpu":
        return _gpu_lie(view, node, boot, offer)
    return _disk_lie(view, boot)


def _gpu_lie(view: View, node: NodeRow, boot: Mapping[str, Any], offer: Mapping[str, Any]) -> str | None:
    found = list(boot.get("gpus") or [])
    needed = max(int(offer.get("gpus") or 0) if not view.plan.shared_host else 0, view.plan.ranks_per_node)
    if len(found) < needed:
        return f"{len(found)} GPUs of {needed}"
    model, memory_gib = str(offer.get("gpu_model") or ""), float(offer.get("gpu_memory_gib") or 0.0)
    others = [gpu for gpu in found if not is_of(model, str(gpu.get("name")))]
    if others and not view.plan.shared_host:
        return f"a {others[0].get('name')} instead of a {model}"
    small = [gpu for gpu in found if float(gpu.get("memory_gib") or 0.0) < SHORT_OF_MEMORY * memory_gib]
    if small and not view.plan.shared_host:
        return f"a GPU with {small[0].get('memory_gib')} GiB instead of {memory_gib:g}"
    if boot.get("cuda_error"):
        return f"CUDA cannot be used: {boot['cuda_error']}"
    return _disk_lie(view, boot)


def _disk_lie(view: View, boot: Mapping[str, Any]) -> str | None:
    wanted, free = view.document.resources.disk_gib, boot.get("disk_free_gib")
    if isinstance(wanted, int | float) and isinstance(free, int | float) and free < wanted:
        return f"{free:g} GiB of disk are free, {wanted:g} needed"
    return None
