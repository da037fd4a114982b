"""Situations of a job that does not run yet, each with what a step decides there in a few words (`views.brief`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shunter_planner.values import as_json
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import NodeState, State
from shunter_store.node.gang import End
from shunter_workers.view import Memory, View
from support.meetings import gathered, gathering
from support.views import (
    CLOUD_OFFER,
    NOW,
    OFFER,
    ago,
    document,
    job,
    market,
    node,
    on_cloud,
    on_cloud_node,
    part,
    plan_on,
    user_failure,
    view,
)

CANCELLED: dict[str, Any] = {"cancel_requested_at": ago(1)}
ORDERED = Memory(ordered_generation=1, started=True)
CLOUDY: dict[str, Any] = {
    "spec": on_cloud(),
    "memory": ORDERED,
    "plan": as_json(plan_on(CLOUD_OFFER, num_nodes=2)),
}
Row = tuple[str, View, list[str]]


def queued(spec: dict[str, Any] | None = None, **changes: Any) -> View:
    return view(job(State.QUEUED, spec, **changes), market=market(OFFER))


QUEUED: list[Row] = [
    ("a slot is free", queued(), ["intend 0", "planned"]),
    ("the user cancelled", queued(**CANCELLED), ["stop cancelled_by_user"]),
    ("it can never fit", queued(document(resources={"cpu_processes": 5})), ["stop does_not_fit"]),
    ("nobody has its provider", queued(document(placement={"providers": ["acme"]})), ["stop invalid"]),
    ("nothing of its kind is offered", queued(document(resources={"gpus": 1})), ["stop no_capacity"]),
    ("it waited too long", queued(document(limits={"max_queue_s": 60})), ["stop queue_timeout"]),
    ("it backs off", queued(memory=Memory(not_before=NOW.timestamp() + 7)), ["wait 7"]),
    (
        "all slots are taken",
        replace(queued(), market=market(OFFER, free=(3,))),
        [],
    ),
    (
        "others come first",
        replace(queued(), market=market(OFFER, ahead={"local/cpu": ["job_0"]})),
        ["wake local/cpu"],
    ),
    (
        "others wait for something else",
        replace(queued(), market=market(OFFER, ahead={"local/gpu": ["job_0"]})),
        ["intend 0", "planned"],
    ),
    (
        "a node of the last attempt is still there",
        view(job(State.QUEUED), node(NodeState.RELEASING), market=market(OFFER, free=())),
        ["terminate node_0"],
    ),
    (
        "a node of the last attempt is still there and others come first",
        view(
            job(State.QUEUED),
            node(NodeState.RELEASING),
            market=market(OFFER, ahead={"local/cpu": ["job_0"]}),
        ),
        ["terminate node_0"],
    ),
]

LATE = node(NodeState.CREATING)
WAITS: dict[str, Any] = {"run_generation": 0, "desired_phase": Phase.HOLD}
BOTH_WAIT = [on_cloud_node(rank=rank, **WAITS) for rank in (0, 1)]
PROVISIONING: list[Row] = [
    (
        "a local node is intended",
        view(job(State.PROVISIONING), node(NodeState.INTENDED)),
        ["begin node_0", "run 1 on node_0", "create node_0"],
    ),
    (
        "a node that bills is intended",
        view(job(State.PROVISIONING, **CLOUDY), on_cloud_node(NodeState.INTENDED)),
        ["begin node_0", "create node_0"],
    ),
    (
        "a step died while it created",
        view(job(State.PROVISIONING), LATE),
        ["release node_0", "capacity_lost"],
    ),
    (
        "a step died a moment ago while it created",
        view(job(State.PROVISIONING), replace(LATE, create_deadline_at=ago(-9))),
        ["search node_0"],
    ),
    (
        "a create call ended in doubt",
        view(job(State.PROVISIONING), node(NodeState.UNKNOWN, create_deadline_at=ago(-9))),
        ["search node_0"],
    ),
    ("the node boots", view(job(State.PROVISIONING), node(NodeState.BOOTING)), ["wait 20"]),
    (
        "the node does not come up",
        view(job(State.PROVISIONING), node(NodeState.BOOTING, created_at=ago(61))),
        ["release node_0", "capacity_lost"],
    ),
    (
        "the provider says that the node failed",
        view(job(State.PROVISIONING), node(NodeState.BOOTING, condition="failed")),
        ["release node_0", "capacity_lost"],
    ),
    (
        "a node of a gang that ran before fails",
        view(job(State.PROVISIONING, memory=ORDERED), node(NodeState.BOOTING, condition="failed")),
        ["release node_0", "node_lost"],
    ),
    ("the node has its orders already", view(job(State.PROVISIONING), node()), ["nodes_ready"]),
    (
        "the node runs already when the user cancels",
        view(job(State.PROVISIONING, **CANCELLED), node()),
        ["nodes_ready"],
    ),
    (
        "every rank is done already when the user cancels",
        view(job(State.PROVISIONING, **CANCELLED), node(), parts=[part(node(), End.DONE)]),
        ["stop done"],
    ),
    (
        "one of two nodes is ready",
        view(
            job(State.PROVISIONING, **CLOUDY),
            on_cloud_node(run_generation=0, desired_phase=Phase.HOLD),
            on_cloud_node(NodeState.BOOTING, 1),
        ),
        ["wait 560"],
    ),
    (
        "both nodes are ready",
        view(job(State.PROVISIONING, **CLOUDY), *BOTH_WAIT),
        ["tell muster node_0,node_1"],
    ),
    (
        "both nodes gather, and one has not called the other yet",
        view(job(State.PROVISIONING, **CLOUDY), *(gathering(node, desired_at=ago(5)) for node in BOTH_WAIT)),
        ["wait 85"],
    ),
    (
        "both nodes gather for too long",
        view(job(State.PROVISIONING, **CLOUDY), *(gathering(node, desired_at=ago(91)) for node in BOTH_WAIT)),
        ["release node_1"],
    ),
    (
        "both nodes reach each other",
        view(job(State.PROVISIONING, **CLOUDY), *gathered(BOTH_WAIT)),
        ["run 1 on node_0,node_1", "nodes_ready"],
    ),
    (
        "one node does not reach the other",
        view(job(State.PROVISIONING, **CLOUDY), *gathered(BOTH_WAIT, faults={(1, 0): "connection refused"})),
        ["release node_0"],
    ),
    (
        "one bad node came after the other",
        view(
            job(State.PROVISIONING, **{**CLOUDY, "memory": Memory(create_failures=3)}),
            *gathered(BOTH_WAIT, faults={(1, 0): "connection refused"}),
        ),
        ["release node_0,node_1", "capacity_lost"],
    ),
    (
        "one node has less than was offered",
        view(
            job(State.PROVISIONING, **CLOUDY),
            BOTH_WAIT[0],
            replace(BOTH_WAIT[1], boot={"gpus": [{"name": "NVIDIA H100", "memory_gib": 79.6}]}),
        ),
        ["release node_1"],
    ),
    (
        "a refused node has to be intended again",
        view(job(State.PROVISIONING, **CLOUDY), on_cloud_node(), market=market(CLOUD_OFFER)),
        ["intend 1"],
    ),
    (
        "a refused node waits until it is known whose account it would be in",
        view(job(State.PROVISIONING, **CLOUDY), on_cloud_node(), market=market(CLOUD_OFFER), accounts={}),
        ["wait 1"],
    ),
    (
        "a refused node has to be intended again later",
        view(job(State.PROVISIONING, **{**CLOUDY, "memory": Memory(not_before=NOW.timestamp() + 3)}), on_cloud_node()),
        ["wait 3"],
    ),
    (
        "the user cancelled",
        view(job(State.PROVISIONING, **CANCELLED), node(NodeState.BOOTING)),
        ["stop cancelled_by_user"],
    ),
]

STARTING: list[Row] = [
    ("ranks are coming up", view(job(State.STARTING), node(), up=1), ["wait"]),
    ("every rank is up", view(job(State.STARTING), node(), up=2), ["trainer_up"]),
    (
        "every rank is up, and from now on a limit counts",
        view(job(State.STARTING, document(limits={"max_duration_s": 600})), node(), up=2),
        ["limit node_0", "trainer_up"],
    ),
    (
        "it is done before anybody saw it run",
        view(job(State.STARTING), node(), parts=[part(node(), End.DONE)]),
        ["stop done"],
    ),
    (
        "the set-up failed",
        view(job(State.STARTING), node(), parts=[user_failure(node(), "setup_failed")]),
        ["stop setup_failed"],
    ),
    ("the node went away", view(job(State.STARTING), node(condition="gone")), ["release node_0", "node_lost"]),
    ("the user cancelled", view(job(State.STARTING, **CANCELLED), node(), up=2), ["stop cancelled_by_user"]),
]
