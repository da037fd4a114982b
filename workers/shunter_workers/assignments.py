"""What each node of a gang is told to run. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from shunter_planner import Plan
from shunter_schemas.job import JobSpec
from shunter_schemas.node_sync import Assignment, ObjectRef, RankPlan, ResumePoint
from shunter_schemas.source import BundleSource
from shunter_store.checkpoints import CheckpointRow
from shunter_store.ledger import NodeRow

from shunter_workers.choosing import devices_of
from shunter_workers.view import View

STOP_GRACE_S: Final = 30.0
_INPUT_BUNDLE: Final = "bundle:"
_LOOPBACK: Final = "127.0.0.1"
_PORTS: Final = range(20_000, 30_000)
"""Below the ports that kernels give to outgoing connections."""


def make_orders(view: View, gang: Sequence[NodeRow], generation: int) -> list[tuple[str, Assignment]]:
    """By node id, the part of every node of the gang in this generation."""
    plan, members = view.plan, sorted(gang, key=lambda node: node.rank)
    return [(node.id, _assignment(view, plan, members, node, generation)) for node in members]


def bundles_of(document: JobSpec) -> list[str]:
    """Digests of the archives that a document names."""
    named = [document.source.id] if isinstance(document.source, BundleSource) else []
    named += [
        entry.from_.removeprefix(_INPUT_BUNDLE)
        for entry in document.inputs.values()
        if entry.from_.startswith(_INPUT_BUNDLE)
    ]
    return [_digest(bundle) for bundle in named]


def _assignment(view: View, plan: Plan, members: Sequence[NodeRow], node: NodeRow, generation: int) -> Assignment:
    document = view.document
    source = document.source
    return Assignment(
        job_id=view.job.id,
        generation=generation,
        document=view.job.spec,
        ranks=_ranks(plan, members, node, view.job.id, generation),
        source=_bundle(view, source.id) if isinstance(source, BundleSource) else None,
        source_commit=view.job.facts.get("source_commit"),
        inputs={
            name: _bundle(view, entry.from_.removeprefix(_INPUT_BUNDLE))
            for name, entry in document.inputs.items()
            if entry.from_.startswith(_INPUT_BUNDLE)
        },
        resume=_resume(view.checkpoint),
        stop_grace_s=STOP_GRACE_S,
    )


def _ranks(plan: Plan, members: Sequence[NodeRow], node: NodeRow, job_id: str, generation: int) -> RankPlan:
    first, alone = members[0].addresses, len(members) == 1
    return RankPlan(
        node_rank=node.rank,
        num_nodes=plan.num_nodes,
        ranks_per_node=plan.ranks_per_node,
        world_size=plan.world_size,
        master_addr=_LOOPBACK if alone else first.get("private") or first.get("public") or _LOOPBACK,
        master_port=0 if alone else _port(job_id, generation),
        gpus=_gpus(plan, node),
        cpu_threads_per_rank=plan.cpu_threads_per_rank,
        interface=None if alone else node.addresses.get("interface"),
    )


def _gpus(plan: Plan, node: NodeRow) -> list[int]:
    if plan.slot_kind != "gpu":
        return []
    if not plan.shared_host:
        return list(range(plan.ranks_per_node))
    return devices_of(plan.offer, node.slot_indices)[: plan.ranks_per_node]


def _port(job_id: str, generation: int) -> int:
    """Another one for each generation: the last one may still be held by ranks that are dying."""
    digest = hashlib.sha256(f"{job_id} {generation}".encode()).digest()
    return _PORTS[int.from_bytes(digest[:4]) % len(_PORTS)]


def _bundle(view: View, bundle_id: str) -> ObjectRef:
    row = view.bundles[_digest(bundle_id)]
    return ObjectRef(path="bundle.tar.gz", size=row.size, sha256=row.digest, object=f"bundles/{row.digest}")


def _digest(bundle_id: str) -> str:
    return bundle_id.removeprefix("bun_")


def _resume(checkpoint: CheckpointRow | None) -> ResumePoint | None:
    if checkpoint is None:
        return None
    files = [
        ObjectRef(path=entry["path"], size=entry["size"], sha256=entry["sha256"], object=entry["object"])
        for entry in checkpoint.files
    ]
    return ResumePoint(generation=checkpoint.generation, step=checkpoint.step, files=files)
