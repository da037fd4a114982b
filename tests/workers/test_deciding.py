"""What a step decides, for every state and situation. Pure: made-up rows in, a few words out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shunter_planner.values import as_json
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import LIVE_STATES, Health, NodeState, Reason, State
from shunter_store.gang import End
from shunter_store.lifecycle import Trigger
from shunter_store.steps import Change
from shunter_workers.deciding import BY_STATE, decide
from shunter_workers.decisions import Intend, Settle
from shunter_workers.view import Memory, View
from support.views import (
    CLOUD_OFFER,
    NOW,
    OFFER,
    ago,
    brief,
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
Row = tuple[str, View, list[str]]


def settled(seen: View) -> Settle:
    decision = decide(seen, NOW)
    assert isinstance(decision, Settle)
    return decision


def told(seen: View) -> Change:
    return settled(seen).change


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
        view(
            job(State.PROVISIONING, **CLOUDY),
            *(on_cloud_node(rank=rank, **WAITS) for rank in (0, 1)),
        ),
        ["run 1 on node_0,node_1", "nodes_ready"],
    ),
    (
        "a refused node has to be intended again",
        view(job(State.PROVISIONING, **CLOUDY), on_cloud_node(), market=market(CLOUD_OFFER)),
        ["intend 1"],
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

BOTH = [on_cloud_node(), on_cloud_node(rank=1)]
STARTING: list[Row] = [
    ("ranks are coming up", view(job(State.STARTING), node(), up=1), ["wait"]),
    ("every rank is up", view(job(State.STARTING), node(), up=2), ["trainer_up"]),
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

RAN_AN_HOUR: dict[str, Any] = {"started_at": ago(3600)}
RUNNING: list[Row] = [
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
        view(job(State.RUNNING, document(limits={"max_duration_s": 3610}), **RAN_AN_HOUR), node()),
        ["wait 10"],
    ),
    (
        "the money is spent",
        view(job(State.RUNNING, **{**CLOUDY, "spec": on_cloud(limits={"max_cost_usd": 12})}), *BOTH, cost_usd=11.9),
        ["stop budget_exhausted"],
    ),
    (
        "the money lasts for half an hour",
        view(job(State.RUNNING, **{**CLOUDY, "spec": on_cloud(limits={"max_cost_usd": 12})}), *BOTH, cost_usd=6.0),
        ["wait 1740"],
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
        "the node takes for ever",
        view(job(State.STOPPING, **DONE), replace(KEPT, desired_at=ago(631))),
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
        "the node went away after a cancel",
        view(job(State.STOPPING, **OPEN), replace(KEPT, condition="gone")),
        ["stop cancelled_by_user"],
    ),
]

TABLES = {
    State.QUEUED: QUEUED,
    State.PROVISIONING: PROVISIONING,
    State.STARTING: STARTING,
    State.RUNNING: RUNNING,
    State.RECOVERING: RECOVERING,
    State.STOPPING: STOPPING,
}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(seen, words, id=f"{state}: {title}")
        for state, rows in TABLES.items()
        for title, seen, words in rows
    ],
)
def test_a_step_decides(seen: View, words: list[str]) -> None:
    assert brief(decide(seen, NOW)) == words


def test_every_state_that_lives_has_its_decisions() -> None:
    assert set(BY_STATE) == set(LIVE_STATES) == set(TABLES)


def test_whoever_moves_a_job_on_looks_again_in_its_new_state() -> None:
    decisions = [decide(seen, NOW) for rows in TABLES.values() for _, seen, _ in rows]

    moves = [entry.change for entry in decisions if isinstance(entry, Settle) and entry.change.trigger]

    assert moves
    for change in moves:
        # What the new state waits for may have come already, and then nothing would wake the job.
        assert change.trigger is Trigger.NODES_GONE or change.next_in_s is not None


def test_a_cancel_stops_a_job_in_every_state_at_once() -> None:
    live = LIVE_STATES - {State.STOPPING}

    decisions = {state: brief(decide(view(job(state, **CANCELLED), node()), NOW)) for state in live}

    assert decisions == {state: ["stop cancelled_by_user"] for state in live}


def test_a_waiting_job_says_what_for_and_who_has_it() -> None:
    seen = replace(queued(), market=market(OFFER, free=(3,), holders={"local/cpu": ["job_0"]}))

    waiting = told(seen).set["waiting"]

    assert waiting["reason"] == "slots_taken"
    assert waiting["detail"] == "local cpu: 1 of 4 CPU slots are free, 2 needed"
    assert (waiting["position"], waiting["blocked_by"], waiting["resource"]) == (1, ["job_0"], "local/cpu")
    assert waiting["tried"][0]["instance_type"] == "cpu"


def test_a_job_that_waits_for_the_same_as_before_is_not_written_again() -> None:
    seen = replace(queued(), market=market(OFFER, free=(3,)))
    again = replace(seen, job=replace(seen.job, waiting=told(seen).set["waiting"]))

    assert told(again).set == {}


@pytest.mark.parametrize(("waited_s", "delay_s"), [(0, 1), (20, 5), (3600, 15)])
def test_a_waiting_job_tries_less_often_the_longer_it_waits(waited_s: float, delay_s: float) -> None:
    seen = replace(queued(created_at=ago(waited_s)), market=market(OFFER, free=()))

    assert told(seen).next_in_s == delay_s


def test_a_gang_takes_the_first_slots_that_are_free() -> None:
    seen = replace(queued(), market=market(OFFER, free=(1, 3)))

    (intend,) = settled(seen).writes

    assert isinstance(intend, Intend)
    assert [place.slot_indices for place in intend.places] == [(1, 3)]


def test_back_off_between_recoveries_doubles_up_to_a_minute() -> None:
    spent = (0, 1, 2, 5, 6, 9)

    memories = [
        settled(view(job(State.RUNNING, node_recoveries=times), node(), parts=[node_failure(node())])).memory
        for times in spent
    ]

    waits = [memory["not_before"] - NOW.timestamp() for memory in memories if memory is not None]
    assert waits == [1, 2, 4, 32, 60, 60]


def test_a_failure_carries_the_first_failing_ranks_last_words() -> None:
    seen = view(job(State.RUNNING), node(), parts=[user_failure(node(), message="ValueError: no such column")])

    assert told(seen).message == "ValueError: no such column"


def test_a_new_plan_has_a_generation_of_its_own() -> None:
    again = queued(memory=Memory(ordered_generation=3), generation=3)

    decision = settled(again)

    assert decision.change.set["generation"] == 4
    assert decision.memory is not None
    assert decision.memory["ordered_generation"] == 4


def test_a_node_that_failed_to_come_up_is_avoided_for_a_while() -> None:
    decision = settled(view(job(State.PROVISIONING), node(NodeState.BOOTING, condition="failed")))

    assert decision.memory is not None
    (block,) = decision.memory["blocks"]
    assert (block["instance"], block["scope"], block["instance_type"]) == ("local", "offer", "cpu")
    assert block["until"] > NOW.timestamp()


def test_health_follows_silence_and_comes_back() -> None:
    silent = told(view(job(State.RUNNING), node(last_sync_at=ago(61))))
    back = told(view(job(State.RUNNING, health=Health.UNREACHABLE), node()))

    assert silent.set == {"health": Health.UNREACHABLE}
    assert back.set == {"health": Health.OK}


def test_a_silent_node_is_given_time_from_when_silence_was_noticed() -> None:
    silent = replace(KEPT, last_sync_at=ago(5000), desired_at=ago(500))

    noticed = settled(view(job(State.STOPPING, **DONE), silent))
    patient = view(job(State.STOPPING, **DONE, memory=Memory(silent_since=ago(119).timestamp())), silent)
    given_up = view(job(State.STOPPING, **DONE, memory=Memory(silent_since=ago(120).timestamp())), silent)

    assert noticed.memory is not None
    assert noticed.memory["silent_since"] == NOW.timestamp()
    assert brief(decide(patient, NOW)) == ["wait 5"]
    assert brief(decide(given_up, NOW)) == ["tell release node_0", "release node_0"]


def test_rows_on_their_way_out_are_closed_while_the_job_waits_for_something_else() -> None:
    seen = view(
        job(State.RECOVERING, memory=replace(ORDERED, not_before=NOW.timestamp() + 4)), node(NodeState.RELEASING)
    )

    assert brief(decide(seen, NOW)) == ["terminate node_0"]
