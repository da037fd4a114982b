"""Situations of a job that runs or ran, each with what a step decides there in a few words (`views.brief`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shunter_planner.values import as_json
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import FailureClass, Health, NodeState, Reason, State
from shunter_store.node.gang import End
from shunter_workers.view import Memory, View
from support.meetings import gathered
from support.views import (
    CLOUD_OFFER,
    NOW,
    OFFER,
    ago,
    document,
    job,
    market,
    node,
    node_failure,
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
BOTH = [on_cloud_node(), on_cloud_node(rank=1)]
KEPT_PAIR = [replace(one, desired_phase=Phase.STOP) for one in BOTH]
Row = tuple[str, View, list[str]]

RAN_AN_HOUR: dict[str, Any] = {"started_at": ago(3600)}
STUCK = replace(BOTH[1], status={"phase": "ended", "stuck": "[Errno 28] No space left on device"})
FULL = part(BOTH[1], End.FAILED, failure_class=FailureClass.NODE, reason="disk_full", message="full")
PEER_LOST = part(BOTH[0], End.FAILED, failure_class=FailureClass.NODE, reason="peer_lost", message="rank 2 is gone")
PEER_FULL = replace(FULL, node_id=BOTH[0].id, node_rank=0, rank=2)


def heard_of(peer_lost_s_ago: float) -> dict[str, Any]:
    memory = replace(ORDERED, peer_lost_at=NOW.timestamp() - peer_lost_s_ago)
    return {**CLOUDY, "memory": memory}


RUNNING: list[Row] = [
    (
        "a node cannot write down what happens",
        view(job(State.RUNNING, **CLOUDY), BOTH[0], STUCK),
        ["release node_1", "tell stop node_0", "node_lost"],
    ),
    (
        "a rank failed since its node's disk is full",
        view(job(State.RUNNING, **CLOUDY), *BOTH, parts=[part(BOTH[0]), FULL]),
        ["release node_1", "tell stop node_0", "node_lost"],
    ),
    (
        "a rank failed since the disk of another rank's node is full",
        view(job(State.RUNNING, **CLOUDY), *BOTH, parts=[PEER_FULL, part(BOTH[1])]),
        ["release node_1", "tell stop node_0", "node_lost"],
    ),
    (
        "a rank lost its peer, whose node has not told why yet",
        view(job(State.RUNNING, **CLOUDY), *BOTH, parts=[PEER_LOST, part(BOTH[1])]),
        [],
    ),
    (
        "the peer's node does not tell why",
        view(job(State.RUNNING, **heard_of(peer_lost_s_ago=4)), *BOTH, parts=[PEER_LOST, part(BOTH[1])]),
        ["tell stop node_0,node_1", "node_lost"],
    ),
    (
        "a rank lost its peer, whose node is down",
        view(
            job(State.RUNNING, **CLOUDY),
            BOTH[0],
            replace(BOTH[1], condition="stopped"),
            parts=[PEER_LOST, part(BOTH[1], condition="stopped")],
        ),
        ["release node_1", "tell stop node_0", "node_lost"],
    ),
    (
        "a rank lost its peer, which the user's program had ended",
        view(job(State.RUNNING, **CLOUDY), *BOTH, parts=[PEER_LOST, user_failure(BOTH[1])]),
        ["stop user_error"],
    ),
    ("nothing happens", view(job(State.RUNNING), node(), up=2), ["wait"]),
    ("every rank is done", view(job(State.RUNNING), node(), parts=[part(node(), End.DONE)]), ["stop done"]),
    (
        "one of two nodes is done",
        view(job(State.RUNNING, **CLOUDY), *BOTH, parts=[part(BOTH[0], End.DONE), part(BOTH[1])]),
        ["wait"],
    ),
    (
        "it was done when the cancel came",
        view(job(State.RUNNING, **CANCELLED), node(), parts=[part(node(), End.DONE)]),
        ["stop done"],
    ),
    (
        "it is done and the node is gone",
        view(job(State.RUNNING), parts=[part(node(NodeState.GONE, run_generation=1), End.DONE)]),
        ["stop done"],
    ),
    ("the user cancelled", view(job(State.RUNNING, **CANCELLED), node()), ["stop cancelled_by_user"]),
    (
        "the program had failed when the user cancelled",
        view(job(State.RUNNING, **CANCELLED), node(), parts=[user_failure(node())]),
        ["stop cancelled_by_user"],
    ),
    ("the program failed", view(job(State.RUNNING), node(), parts=[user_failure(node())]), ["stop user_error"]),
    (
        "the program ran out of memory",
        view(job(State.RUNNING), node(), parts=[user_failure(node(), "out_of_memory")]),
        ["stop out_of_memory"],
    ),
    (
        "the program failed in a way of its own",
        view(job(State.RUNNING), node(), parts=[user_failure(node(), "non_finite_loss")]),
        ["stop user_error"],
    ),
    (
        "the program failed and may start again",
        view(job(State.RUNNING, document(recovery={"user_restarts": 1})), node(), parts=[user_failure(node())]),
        ["tell stop node_0", "node_lost"],
    ),
    (
        "the program failed again",
        view(
            job(State.RUNNING, document(recovery={"user_restarts": 1}), user_restarts=1),
            node(),
            parts=[user_failure(node())],
        ),
        ["stop user_error"],
    ),
    (
        "somebody killed a rank",
        view(job(State.RUNNING), node(), parts=[node_failure(node())]),
        ["tell stop node_0", "node_lost"],
    ),
    (
        "somebody killed a rank and recovery is spent",
        view(job(State.RUNNING, node_recoveries=10), node(), parts=[node_failure(node())]),
        ["stop recovery_exhausted"],
    ),
    ("the node is gone", view(job(State.RUNNING), node(condition="gone")), ["release node_0", "node_lost"]),
    (
        "one of two nodes is gone",
        view(job(State.RUNNING, **CLOUDY), BOTH[0], replace(BOTH[1], condition="gone")),
        ["release node_1", "tell stop node_0", "node_lost"],
    ),
    (
        "nodes stopped by themselves at the time limit",
        view(
            job(State.RUNNING, document(limits={"max_duration_s": 3000}), **RAN_AN_HOUR),
            node(),
            parts=[part(node(), End.STOPPED, reason="lease_expired")],
        ),
        ["stop duration_exceeded"],
    ),
    (
        "nodes stopped by themselves since nobody renewed their lease",
        view(job(State.RUNNING), node(), parts=[part(node(), End.STOPPED, reason="lease_expired")]),
        ["tell stop node_0", "node_lost"],
    ),
    (
        "the time is up",
        view(job(State.RUNNING, document(limits={"max_duration_s": 3600}), **RAN_AN_HOUR), node()),
        ["stop duration_exceeded"],
    ),
    (
        "the time is nearly up",
        view(job(State.RUNNING, document(limits={"max_duration_s": 3610}), **RAN_AN_HOUR), node(stop_at=ago(-15))),
        ["wait 10"],
    ),
    (
        "the money is spent",
        view(job(State.RUNNING, **{**CLOUDY, "spec": on_cloud(limits={"max_cost_usd": 12})}), *BOTH, cost_usd=11.9),
        ["stop budget_exhausted"],
    ),
    (
        "the money lasts for half an hour",
        view(
            job(State.RUNNING, **{**CLOUDY, "spec": on_cloud(limits={"max_cost_usd": 12})}),
            *(replace(one, stop_at=ago(-1745.4)) for one in BOTH),
            cost_usd=6.0,
        ),
        ["wait 1740"],
    ),
    (
        "its nodes do not know the time limit yet",
        view(
            job(State.RUNNING, document(limits={"max_duration_s": 3610}), **RAN_AN_HOUR),
            node(),
            node(rank=1, stop_at=ago(-15)),
        ),
        ["limit node_0"],
    ),
    (
        "its nodes carry a limit that was lifted",
        view(job(State.RUNNING, **RAN_AN_HOUR), node(stop_at=ago(-15))),
        ["limit node_0"],
    ),
    ("the node is silent", view(job(State.RUNNING), node(last_sync_at=ago(61))), []),
    (
        "the node is silent still",
        view(job(State.RUNNING, health=Health.UNREACHABLE), node(last_sync_at=ago(99))),
        ["wait 5"],
    ),
]

KEPT = node(desired_phase=Phase.STOP, desired_at=ago(2))
RECOVERING: list[Row] = [
    ("a kept node still runs the old generation", view(job(State.RECOVERING), node()), ["tell stop node_0"]),
    ("a kept node uploads what is left", view(job(State.RECOVERING), KEPT), ["wait 58"]),
    (
        "a kept node takes too long",
        view(job(State.RECOVERING, memory=ORDERED), replace(KEPT, desired_at=ago(61))),
        ["run 2 on node_0", "nodes_ready"],
    ),
    (
        "a kept node is drained",
        view(job(State.RECOVERING, memory=ORDERED), KEPT, parts=[part(KEPT, End.STOPPED, drained=True)]),
        ["run 2 on node_0", "nodes_ready"],
    ),
    (
        "it backs off",
        view(
            job(State.RECOVERING, memory=replace(ORDERED, not_before=NOW.timestamp() + 4)),
            KEPT,
            parts=[part(KEPT, drained=True)],
        ),
        ["wait 4"],
    ),
    ("a kept node is gone now", view(job(State.RECOVERING), replace(KEPT, condition="gone")), ["release node_0"]),
    ("a half-made node is of no use", view(job(State.RECOVERING), node(NodeState.BOOTING)), ["release node_0"]),
    (
        "no node is left",
        view(job(State.RECOVERING, memory=ORDERED), market=market(OFFER)),
        ["intend 0", "planned"],
    ),
    (
        "the lost node still holds the slots",
        view(
            job(State.RECOVERING, memory=replace(ORDERED, asked={"node_0": ago(1).timestamp()})),
            node(NodeState.RELEASING),
            market=market(OFFER, free=(3,)),
        ),
        [],
    ),
    (
        "a kept node cannot write down what happens",
        view(job(State.RECOVERING, **CLOUDY), KEPT_PAIR[0], replace(KEPT_PAIR[1], status=STUCK.status)),
        ["release node_1"],
    ),
    (
        "both nodes are kept and have come to rest",
        view(job(State.RECOVERING, **CLOUDY), *KEPT_PAIR, parts=[part(one, drained=True) for one in BOTH]),
        ["tell muster node_0,node_1"],
    ),
    (
        "both nodes are kept and reach each other",
        view(
            job(State.RECOVERING, **CLOUDY),
            *gathered(KEPT_PAIR, generation=2),
            parts=[part(one, drained=True) for one in BOTH],
        ),
        ["run 2 on node_0,node_1", "nodes_ready"],
    ),
    (
        "one of two nodes is missing",
        view(
            job(State.RECOVERING, **CLOUDY),
            replace(BOTH[0], desired_phase=Phase.STOP),
            parts=[part(BOTH[0], drained=True)],
            market=market(CLOUD_OFFER),
        ),
        ["intend 1", "planned"],
    ),
    ("the user cancelled", view(job(State.RECOVERING, **CANCELLED), KEPT), ["stop cancelled_by_user"]),
]

DONE: dict[str, Any] = {"reason": Reason.DONE, "outcome": State.SUCCEEDED}
OVER: dict[str, Any] = {"reason": Reason.CANCELLED_BY_USER, "outcome": State.CANCELLED}
OPEN: dict[str, Any] = {"reason": Reason.CANCELLED_BY_USER, "memory": ORDERED}
LEAVING = node(NodeState.RELEASING, run_generation=1)
ASKED = Memory(asked={"node_0": ago(1).timestamp()})
STOPPING: list[Row] = [
    ("no node is left", view(job(State.STOPPING, **DONE)), ["nodes_gone"]),
    ("the node was not told yet", view(job(State.STOPPING, **DONE), node()), ["tell stop node_0"]),
    ("the node uploads what is left", view(job(State.STOPPING, **DONE), KEPT), ["wait 5"]),
    (
        "the node is drained",
        view(job(State.STOPPING, **DONE), KEPT, parts=[part(KEPT, End.DONE, drained=True)]),
        ["tell release node_0", "release node_0"],
    ),
    (
        "a node that was cancelled takes for ever",
        view(job(State.STOPPING, **OVER), replace(KEPT, desired_at=ago(631))),
        ["tell release node_0", "release node_0"],
    ),
    (
        "a node that was done takes long, and answers",
        view(job(State.STOPPING, **DONE), replace(KEPT, desired_at=ago(86_000))),
        ["wait 5"],
    ),
    (
        "a node that was done takes for ever",
        view(job(State.STOPPING, **DONE), replace(KEPT, desired_at=ago(86_431))),
        ["tell release node_0", "release node_0"],
    ),
    (
        "the node is gone",
        view(job(State.STOPPING, **DONE), node(condition="gone")),
        ["tell release node_0", "release node_0"],
    ),
    (
        "the node never came up",
        view(job(State.STOPPING, **DONE), node(NodeState.BOOTING)),
        ["tell release node_0", "release node_0"],
    ),
    (
        "the node was never created",
        view(job(State.STOPPING, **DONE), node(NodeState.RELEASING, handle=None, create_deadline_at=None)),
        ["close node_0 never_begun"],
    ),
    (
        "a create call was in doubt",
        view(job(State.STOPPING, **DONE), node(NodeState.RELEASING, handle=None, create_deadline_at=ago(-9))),
        ["wait 9"],
    ),
    (
        "a create call was in doubt and two scans do not show it",
        view(job(State.STOPPING, **DONE), node(NodeState.RELEASING, handle=None, absent_scans=2)),
        ["close node_0 absent"],
    ),
    ("the node has to be terminated", view(job(State.STOPPING, **DONE), LEAVING), ["terminate node_0"]),
    ("the node is being terminated", view(job(State.STOPPING, **DONE, memory=ASKED), LEAVING), ["wait 4"]),
    (
        "the node is still there",
        view(job(State.STOPPING, **DONE, memory=Memory(asked={"node_0": ago(6).timestamp()})), LEAVING),
        ["terminate node_0"],
    ),
    (
        "two scans do not show the node",
        view(job(State.STOPPING, **DONE, memory=ASKED), replace(LEAVING, absent_scans=2)),
        ["prove node_0"],
    ),
    (
        "a cancel came and the node has not heard of it",
        view(job(State.STOPPING, **OPEN), node()),
        ["tell stop node_0"],
    ),
    (
        "a cancel came too late",
        view(job(State.STOPPING, **OPEN), KEPT, parts=[part(KEPT, End.DONE)]),
        ["stop done"],
    ),
    (
        "a cancel stopped the ranks",
        view(job(State.STOPPING, **OPEN), KEPT, parts=[part(KEPT, End.STOPPED)]),
        ["stop cancelled_by_user"],
    ),
    (
        "a cancel stopped the ranks, and nothing is left to upload",
        view(job(State.STOPPING, **OPEN), KEPT, parts=[part(KEPT, End.STOPPED, drained=True)]),
        ["tell release node_0", "release node_0", "stop cancelled_by_user"],
    ),
    (
        "the node went away after a cancel",
        view(job(State.STOPPING, **OPEN), replace(KEPT, condition="gone")),
        ["tell release node_0", "release node_0", "stop cancelled_by_user"],
    ),
]
