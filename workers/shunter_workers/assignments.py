"""What each node of a gang is told to run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shunter_planner import Plan
from shunter_planner.pinning import pinned
from shunter_schemas.job import JobSpec
from shunter_schemas.node_sync import Assignment, ObjectRef, RankPlan, ResumePoint
from shunter_schemas.source import BundleSource
from shunter_store.node.ledger import NodeRow
from shunter_store.report.checkpoints import CheckpointRow

from shunter_workers.choosing import devices_of
from shunter_workers.mustering import Meeting
from shunter_workers.view import View

_INPUT_BUNDLE: Final = "bundle:"
_LOOPBACK: Final = "127.0.0.1"


def make_orders(
    view: View, gang: Sequence[NodeRow], generation: int, meeting: Meeting | None = None
) -> list[tuple[str, Assignment]]:
    """By node id, the part of every node of the gang in this generation; several nodes have met before."""
    members = sorted(gang, key=lambda node: node.rank)
    assert meeting is not None or len(members) == 1, "a gang of several nodes has a meeting"
    return [(node.id, _assignment(view, _ranks(view.plan, members, node, meeting), generation)) for node in members]


def bundles_of(document: JobSpec) -> list[str]:
    """Digests of the archives that a document names."""
    named = [document.source.id] if isinstance(document.source, BundleSource) else []
    named += [
        entry.from_.removeprefix(_INPUT_BUNDLE)
        for entry in document.inputs.values()
        if entry.from_.startswith(_INPUT_BUNDLE)
    ]
    return [_digest(bundle) for bundle in named]


def _assignment(view: View, ranks: RankPlan, generation: int) -> Assignment:
    document = view.document
    source = document.source
    return Assignment(
        job_id=view.job.id,
        generation=generation,
        document=pinned(view.job.spec, view.plan),
        ranks=ranks,
        source=_bundle(view, source.id) if isinstance(source, BundleSource) else None,
        source_commit=view.job.facts.get("source_commit"),
        inputs={
            name: _bundle(view, entry.from_.removeprefix(_INPUT_BUNDLE))
            for name, entry in document.inputs.items()
            if entry.from_.startswith(_INPUT_BUNDLE)
        },
        resume=_resume(view.checkpoint),
        stop_grace_s=view.stop_grace_s,
    )


def _ranks(plan: Plan, members: Sequence[NodeRow], node: NodeRow, meeting: Meeting | None) -> RankPlan:
    """A node by itself picks its port; of several, the first has picked and holds it."""
    return RankPlan(
        node_rank=node.rank,
        num_nodes=plan.num_nodes,
        ranks_per_node=plan.ranks_per_node,
        world_size=plan.world_size,
        master_addr=_LOOPBACK if meeting is None else meeting.addresses[members[0].id],
        master_port=0 if meeting is None else meeting.master_port,
        gpus=_gpus(plan, node),
        cpu_threads_per_rank=plan.cpu_threads_per_rank,
        interface=None if meeting is None else meeting.interfaces[node.id],
    )


def _gpus(plan: Plan, node: NodeRow) -> list[int]:
    if plan.slot_kind != "gpu":
        return []
    if not plan.shared_host:
        return list(range(plan.ranks_per_node))
    return devices_of(plan.offer, node.slot_indices)[: plan.ranks_per_node]


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
