"""Views of made-up jobs, for the pure decisions of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from shunter_planner import Candidate, Plan
from shunter_planner.values import as_json
from shunter_providers.contract import Availability, Capabilities, Offer, Price
from shunter_schemas.job import load_job
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import FailureClass, Health, NodeState, State
from shunter_store.job.jobs import JobRow
from shunter_store.node.gang import End, GangFacts, NodeFacts, verdict
from shunter_store.node.ledger import NodeRow
from shunter_workers.decisions import (
    Act,
    BeginCreate,
    Close,
    Decision,
    Intend,
    Limit,
    MarkUnknown,
    RecordHandle,
    RecordSeen,
    Release,
    Renumber,
    Run,
    Tell,
    WakeWaiting,
)
from shunter_workers.view import MEMORY, Market, Memory, View

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
LOCAL = Capabilities(idempotency="unique_name", bills=False, shared_hosts=True, readiness_deadline_s=60.0)
CLOUD = Capabilities(visibility_delay_s=5.0, readiness_deadline_s=600.0, create_timeout_s=30.0)
OFFER = Offer(
    instance_type="cpu",
    region="local",
    jurisdiction="",
    price=Price(billed=False),
    cpus=4,
    cpu_slots=4,
    availability=Availability.AVAILABLE,
)
CLOUD_OFFER = replace(
    OFFER,
    instance_type="2xH100",
    region="eu-1",
    price=Price(gpu_usd_per_hour=6.0),
    cpu_slots=0,
    gpus=2,
    gpu_model="H100",
    gpu_memory_gib=80.0,
)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def document(**parts: Any) -> dict[str, Any]:
    return {
        "version": "1",
        "name": "job",
        "workload": {"kind": "script", "launcher": "plain", "command": ["true"]},
        "resources": {"cpu_processes": 2},
        **parts,
    }


def on_cloud(**parts: Any) -> dict[str, Any]:
    """Two nodes of two GPUs."""
    return document(resources={"nodes": 2, "gpus_per_node": 2}, **parts)


def plan_on(offer: Offer, *, num_nodes: int = 1) -> Plan:
    shared = offer is OFFER
    return Plan(
        instance="local" if shared else "cloud",
        offer=offer,
        num_nodes=num_nodes,
        ranks_per_node=2,
        world_size=2 * num_nodes,
        slot_kind="cpu" if shared else "gpu",
        shared_host=shared,
        cpu_threads_per_rank=1,
        usd_per_hour=num_nodes * offer.price.usd_per_hour,
        strategy={"kind": "own"},
    )


def job(state: State, spec: dict[str, Any] | None = None, *, memory: Memory | None = None, **changes: Any) -> JobRow:
    row = JobRow(
        id="job_1",
        project="default",
        created_by="me",
        name="job",
        labels={},
        priority=2,
        spec=spec or document(),
        state=state,
        reason=None,
        message=None,
        health=Health.OK,
        outcome=None,
        cancel_requested_at=None,
        generation=1,
        revision=1,
        event_seq=1,
        provider=None,
        plan=None if state is State.QUEUED else as_json(plan_on(OFFER)),
        waiting=None,
        facts={MEMORY: (memory or Memory()).as_json()},
        user_restarts=0,
        node_recoveries=0,
        created_at=ago(100),
        updated_at=ago(1),
        started_at=None,
        finished_at=None,
        released_at=None,
    )
    return replace(row, **changes)


def node(state: NodeState = NodeState.READY, rank: int = 0, **changes: Any) -> NodeRow:
    """A node of `local`; ready ones run generation 1 and report."""
    begun = state is not NodeState.INTENDED
    known = state not in (NodeState.INTENDED, NodeState.CREATING, NodeState.UNKNOWN)
    runs = state is NodeState.READY
    row = NodeRow(
        id=f"node_{rank}",
        token=f"shn-abcdef-{rank}",
        job_id="job_1",
        generation=1,
        rank=rank,
        instance="local",
        account="me",
        offer=asdict(OFFER),
        slot_kind="cpu",
        slot_indices=[0, 1],
        state=state,
        handle=f"handle-{rank}" if known else None,
        billed_usd_per_hour=0.0,
        intended_at=ago(50),
        created_at=ago(40) if known else None,
        ready_at=ago(39) if runs else None,
        releasing_at=ago(2) if state is NodeState.RELEASING else None,
        gone_at=None,
        reason=None,
        condition="running" if known else None,
        condition_reason=None,
        scanned_at=ago(1) if known else None,
        absent_scans=0,
        create_deadline_at=ago(20) if begun else None,
        lease_s=None,
        lease_granted_until=None,
        stop_at=None,
        desired_phase=Phase.RUN if runs else Phase.HOLD,
        desired_generation=1,
        desired_reason=None,
        desired_at=ago(38),
        run_generation=1 if runs else 0,
        assignment=None,
        journal_id="j" if runs else None,
        acknowledged=0,
        last_sync_at=ago(1) if runs else None,
        status={},
        boot=None,
        addresses={"private": f"10.0.0.{rank + 1}"},
    )
    return replace(row, **changes)


def on_cloud_node(state: NodeState = NodeState.READY, rank: int = 0, **changes: Any) -> NodeRow:
    cloudy: dict[str, Any] = {
        "instance": "cloud",
        "offer": asdict(CLOUD_OFFER),
        "slot_kind": None,
        "slot_indices": [],
        "billed_usd_per_hour": 6.0,
    }
    return node(state, rank, **{**cloudy, **changes})


def part(row: NodeRow, end: End | None = None, **changes: Any) -> NodeFacts:
    """What one node's part of generation 1 amounts to."""
    facts = NodeFacts(
        node_id=row.id,
        node_rank=row.rank,
        state=row.state,
        condition=row.condition,
        member=row.run_generation == 1,
        drained=False,
        ended=end,
        ended_at=NOW if end else None,
    )
    return replace(facts, **changes)


def user_failure(row: NodeRow, reason: str = "user_error", message: str = "boom") -> NodeFacts:
    return part(row, End.FAILED, failure_class=FailureClass.USER, reason=reason, message=message, rank=0)


def node_failure(row: NodeRow, reason: str = "signal", message: str = "rank 1 got SIGKILL") -> NodeFacts:
    return part(row, End.FAILED, failure_class=FailureClass.NODE, reason=reason, message=message, rank=1)


def view(row: JobRow, *nodes: NodeRow, parts: list[NodeFacts] | None = None, up: int = 0, **changes: Any) -> View:
    facts = GangFacts(
        job_id=row.id,
        generation=row.generation,
        ranks_up=up,
        world_size=2,
        nodes=tuple(parts if parts is not None else [part(entry) for entry in nodes]),
    )
    seen = View(
        job=row,
        document=load_job(row.spec),
        nodes=nodes,
        gang=facts,
        verdict=verdict(facts),
        capabilities={"local": LOCAL, "cloud": CLOUD},
        accounts={"local": "me", "cloud": "me"},
    )
    return replace(seen, **changes)


def market(*offers: Offer, free: tuple[int, ...] = (0, 1, 2, 3), **changes: Any) -> Market:
    """What there is to choose from: `OFFER` on `local` with these slots free, anything else on `cloud`."""
    candidates = [
        Candidate("local", replace(OFFER, free=len(free)), shared_host=True)
        if offer is OFFER
        else Candidate("cloud", offer)
        for offer in offers
    ]
    return replace(Market(("local", "cloud"), candidates, free={("local", "cpu"): free}), **changes)


def brief(decision: Decision) -> list[str]:
    """A decision in a few words, one a part, for tables."""
    if isinstance(decision, Act):
        call = type(decision.action).__name__.lower()
        return [*(_written(write) for write in decision.writes), f"{call} {decision.action.node.id}"]
    change = decision.change
    said = [_written(write) for write in decision.writes]
    if change.trigger is not None:
        said.append(" ".join(filter(None, (change.trigger, change.reason))))
    if change.moved is not None:
        said.append(f"move {','.join(change.moved.parts)}")
    if decision.only_waits:
        said.append("wait" if change.next_in_s is None else f"wait {change.next_in_s:g}")
    return said


def _written(write: Any) -> str:
    return _WORDS[type(write)](write)


_WORDS: dict[type, Callable[[Any], str]] = {
    Intend: lambda write: f"intend {','.join(str(place.rank) for place in write.places)}",
    BeginCreate: lambda write: f"begin {write.node_id}",
    Run: lambda write: f"run {write.generation} on {','.join(node_id for node_id, _ in write.orders)}",
    Tell: lambda write: f"tell {write.phase} {','.join(write.node_ids)}",
    Limit: lambda write: f"limit {','.join(write.node_ids)}",
    Renumber: lambda write: f"ranks {','.join(f'{node_id}={rank}' for node_id, rank in write.ranks)}",
    Release: lambda write: f"release {','.join(write.node_ids)}",
    MarkUnknown: lambda write: f"unknown {write.node_id}",
    RecordSeen: lambda write: f"seen {write.condition}",
    WakeWaiting: lambda write: f"wake {write.instance}/{write.slot_kind}",
    RecordHandle: lambda write: f"handle {write.handle}",
    Close: lambda write: f"close {write.node.id} {write.proof['kind']}",
}
