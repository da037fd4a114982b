"""What decisions carry beside their words: reasons, waits, slots, memory. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shunter_planner.values import as_json
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import Health, NodeState, Reason, State
from shunter_store.job.steps import Change
from shunter_workers.deciding import decide
from shunter_workers.decisions import Act, Create, Intend, Run, Settle
from shunter_workers.states.ends import ALONE_LATER_S, START_TAKES_S
from shunter_workers.view import Memory, View
from support.meetings import gathered
from support.views import (
    CLOUD_OFFER,
    NOW,
    OFFER,
    ago,
    brief,
    job,
    market,
    node,
    node_failure,
    on_cloud,
    on_cloud_node,
    plan_on,
    user_failure,
    view,
)

ORDERED = Memory(ordered_generation=1, started=True)
DONE: dict[str, Any] = {"reason": Reason.DONE, "outcome": State.SUCCEEDED}
KEPT = node(desired_phase=Phase.STOP, desired_at=ago(2))


def settled(seen: View) -> Settle:
    decision = decide(seen, NOW)
    assert isinstance(decision, Settle)
    return decision


def told(seen: View) -> Change:
    return settled(seen).change


def queued(spec: dict[str, Any] | None = None, **changes: Any) -> View:
    return view(job(State.QUEUED, spec, **changes), market=market(OFFER))


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


@pytest.mark.parametrize(
    ("limits", "ends_in_s"),
    [({}, None), ({"max_duration_s": 3600}, 2 * (3600 + START_TAKES_S + ALONE_LATER_S) + 86_400)],
    ids=["without limits", "with a limit"],
)
def test_a_provider_is_told_when_a_node_is_of_no_use_any_more(limits: dict[str, Any], ends_in_s: float | None) -> None:
    spec = {**on_cloud(), "limits": limits}
    plan = as_json(plan_on(CLOUD_OFFER, num_nodes=1))

    decision = decide(view(job(State.PROVISIONING, spec, plan=plan), on_cloud_node(NodeState.INTENDED)), NOW)

    assert isinstance(decision, Act)
    assert isinstance(decision.action, Create)
    assert decision.action.ends_in_s == ends_in_s


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


@pytest.mark.parametrize(
    ("limits", "started_at", "stops_in_s"),
    [
        ({}, None, None),
        ({"max_duration_s": 1000}, None, 1605),
        ({"max_duration_s": 1000}, ago(300), 705),
        ({"max_cost_usd": 12}, None, 3545),
        ({"max_duration_s": 1000, "max_cost_usd": 1}, ago(300), 245),
    ],
)
def test_the_caps_hold_on_nodes_on_their_own(limits: dict[str, Any], started_at: Any, stops_in_s: float) -> None:
    spec = on_cloud(limits=limits)
    row = job(State.PROVISIONING, spec, plan=as_json(plan_on(CLOUD_OFFER, num_nodes=2)), started_at=started_at)
    nodes = gathered([on_cloud_node(rank=rank) for rank in (0, 1)])

    (run,) = settled(view(row, *nodes)).writes

    assert isinstance(run, Run)
    assert (run.stop_at - NOW).total_seconds() == stops_in_s if run.stop_at else stops_in_s is None
