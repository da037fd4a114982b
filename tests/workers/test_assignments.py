"""What each node of a gang is told to run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from shunter_planner import Plan
from shunter_planner.values import as_json
from shunter_schemas.node_sync import Assignment
from shunter_schemas.states import State
from shunter_store.report.checkpoints import CheckpointRow
from shunter_store.storage.bundles import BundleRow
from shunter_workers.assignments import bundles_of, make_orders
from shunter_workers.mustering import Meeting, judge
from shunter_workers.view import View
from support.meetings import PORT, gathered
from support.views import CLOUD_OFFER, NOW, OFFER, document, job, node, on_cloud, on_cloud_node, plan_on, view

SHA = "ab" * 32


def orders(seen: View, generation: int = 2) -> list[Assignment]:
    met = judge(seen.members, generation) if len(seen.members) > 1 else None
    assert met is None or isinstance(met, Meeting)
    return [assignment for _, assignment in make_orders(seen, seen.members, generation, met)]


def test_ranks_lie_on_nodes_in_order_and_meet_at_the_first_where_the_others_reach_it() -> None:
    plan = as_json(plan_on(CLOUD_OFFER, num_nodes=2))
    nodes = gathered([on_cloud_node(rank=1), on_cloud_node(rank=0)], generation=2)

    first, second = orders(view(job(State.PROVISIONING, on_cloud(), plan=plan), *nodes))

    assert [entry.ranks.node_rank for entry in (first, second)] == [0, 1]
    assert first.ranks.master_addr == second.ranks.master_addr == "10.0.0.1"
    assert first.ranks.master_port == second.ranks.master_port == PORT
    assert (first.ranks.num_nodes, first.ranks.ranks_per_node, first.ranks.world_size) == (2, 2, 4)
    assert (first.ranks.gpus, second.ranks.interface) == ([0, 1], "eth1")


def test_a_node_alone_meets_itself_on_loopback_at_a_port_that_it_picks() -> None:
    (only,) = orders(view(job(State.PROVISIONING), node()))

    assert (only.ranks.master_addr, only.ranks.master_port, only.ranks.interface) == ("127.0.0.1", 0, None)
    assert only.ranks.gpus == []


def test_on_a_shared_host_the_reserved_gpus_are_the_jobs() -> None:
    plan: Plan = replace(plan_on(OFFER), slot_kind="gpu")

    (only,) = orders(view(job(State.PROVISIONING, plan=as_json(plan)), node(slot_indices=[2, 5])))

    assert only.ranks.gpus == [2, 5]


def test_archives_come_with_size_digest_and_place() -> None:
    other = "cd" * 32
    spec = document(
        source={"kind": "bundle", "id": f"bun_{SHA}"},
        inputs={"train": {"from": f"bundle:bun_{other}"}, "far": {"from": "s3://acme/x"}},
    )
    rows = {digest: BundleRow(digest, 123, 4, NOW) for digest in (SHA, other)}

    seen = view(job(State.PROVISIONING, spec), node(), bundles=rows)
    (only,) = orders(seen)

    assert only.source is not None
    assert (only.source.sha256, only.source.size, only.source.object) == (SHA, 123, f"bundles/{SHA}")
    assert {name: entry.sha256 for name, entry in only.inputs.items()} == {"train": other}
    assert bundles_of(seen.document) == [SHA, other]


def test_the_last_committed_checkpoint_is_where_it_goes_on() -> None:
    file = {
        "path": "model.safetensors",
        "size": 7,
        "sha256": SHA,
        "object": f"job_1/1/checkpoints/{SHA}",
        "node_rank": 0,
    }
    checkpoint = CheckpointRow("job_1", 1, 300, [file], {}, 7, datetime.now(UTC), None)

    (only,) = orders(view(job(State.PROVISIONING), node(), checkpoint=checkpoint))

    assert only.resume is not None
    assert (only.resume.generation, only.resume.step) == (1, 300)
    assert [entry.path for entry in only.resume.files] == ["model.safetensors"]


def test_a_git_source_stays_at_the_commit_of_the_first_attempt() -> None:
    (only,) = orders(view(job(State.PROVISIONING, facts={"source_commit": "c0ffee"}), node()))

    assert only.source_commit == "c0ffee"
