"""A budget holds: what a job has cost comes from the ledger, and nothing is begun that the rest does not pay for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shunter_planner.values import as_json
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import FailureClass, NodeState, Reason, State
from shunter_store.node.gang import End
from shunter_workers.deciding import decide
from shunter_workers.decisions import Limit, Run, Settle
from shunter_workers.view import Memory, View
from support.views import CLOUD_OFFER, NOW, ago, brief, job, market, on_cloud, on_cloud_node, part, plan_on, view

CLOUDY: dict[str, Any] = {"plan": as_json(plan_on(CLOUD_OFFER, num_nodes=2)), "provider": "cloud"}
STARTED = Memory(ordered_generation=1, started=True)
BOTH = (on_cloud_node(rank=0), on_cloud_node(rank=1))
"""12 USD an hour: 60 s of it are 0.20 USD."""
BOOTING = (on_cloud_node(NodeState.BOOTING, rank=0), on_cloud_node(NodeState.BOOTING, rank=1))
WHY: dict[End, Any] = {
    End.STOPPED: {"reason": "lease_expired"},
    End.FAILED: {"reason": "peer_lost", "failure_class": FailureClass.NODE},
}
STOPPING = tuple(on_cloud_node(rank=rank, desired_phase=Phase.STOP, desired_at=ago(5)) for rank in (0, 1))


def budgeted(state: State, *nodes: Any, cost_usd: float, limit: float = 10.0, **given: Any) -> View:
    spec = on_cloud(limits={"max_cost_usd": limit})
    memory = given.pop("memory", STARTED)
    columns = {"spec": spec, "started_at": ago(300), **CLOUDY, **given.pop("columns", {})}
    return view(job(state, memory=memory, **columns), *nodes, cost_usd=cost_usd, **given)


def stopped_for(decision: Any) -> Reason | None:
    assert isinstance(decision, Settle)
    return decision.change.reason


@pytest.mark.parametrize("state", [State.PROVISIONING, State.STARTING, State.RUNNING, State.RECOVERING])
def test_a_job_is_stopped_before_it_costs_more_in_every_state_in_which_it_has_nodes(state: State) -> None:
    gang = BOOTING if state is State.PROVISIONING else BOTH

    just_before = decide(budgeted(state, *gang, cost_usd=9.79), NOW)
    in_time = decide(budgeted(state, *gang, cost_usd=9.81), NOW)

    assert "stop budget_exhausted" not in brief(just_before)
    assert brief(in_time) == ["stop budget_exhausted"]


def test_a_failover_with_a_spent_budget_creates_nothing() -> None:
    """Every node is lost, so that nothing bills at the moment: what was spent is spent all the same."""
    seen = budgeted(State.RECOVERING, cost_usd=10.0, market=market(CLOUD_OFFER))

    assert brief(decide(seen, NOW)) == ["stop budget_exhausted"]


def test_a_resume_with_a_spent_budget_creates_nothing() -> None:
    seen = budgeted(State.QUEUED, cost_usd=10.01, market=market(CLOUD_OFFER), columns={"plan": None})

    assert brief(decide(seen, NOW)) == ["stop budget_exhausted"]


@pytest.mark.parametrize("state", [State.QUEUED, State.RECOVERING])
def test_a_gang_is_not_begun_when_the_rest_pays_only_for_its_stop(state: State) -> None:
    seen = budgeted(state, cost_usd=9.85, market=market(CLOUD_OFFER), columns={"plan": None})

    decided = decide(seen, NOW)

    assert stopped_for(decided) is Reason.BUDGET_EXHAUSTED
    assert isinstance(decided, Settle)
    assert "9.85 USD of 10.00" in str(decided.change.message)
    assert "12.00 USD an hour" in str(decided.change.message)


def test_a_job_at_rest_with_a_spent_budget_rests_on() -> None:
    resting = Memory(ordered_generation=1, paused_at=ago(60).timestamp())
    seen = budgeted(State.QUEUED, cost_usd=11.0, memory=resting, columns={"plan": None, "pause_requested_at": ago(60)})

    assert brief(decide(seen, NOW)) == ["wait"]


def test_the_stop_for_a_budget_lets_the_ranks_save_while_there_is_money() -> None:
    reason = {"reason": Reason.BUDGET_EXHAUSTED, "outcome": State.FAILED}

    told = decide(budgeted(State.STOPPING, *BOTH, cost_usd=9.85, columns=reason), NOW)
    saving = decide(
        budgeted(State.STOPPING, *STOPPING, cost_usd=9.95, columns=reason, parts=[part(row) for row in STOPPING]), NOW
    )

    assert brief(told) == ["tell stop node_0,node_1"]
    assert brief(saving) == ["wait 5"]


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (Reason.BUDGET_EXHAUSTED, State.FAILED),
        (Reason.CANCELLED_BY_USER, State.CANCELLED),
        (Reason.USER_ERROR, State.FAILED),
    ],
)
def test_a_budget_is_a_cap_not_even_a_last_checkpoint_is_waited_for_beyond_it(reason: Reason, outcome: State) -> None:
    reason_columns = {"reason": reason, "outcome": outcome}
    seen = budgeted(
        State.STOPPING, *STOPPING, cost_usd=10.0, columns=reason_columns, parts=[part(row) for row in STOPPING]
    )

    assert brief(decide(seen, NOW)) == ["release node_0,node_1"]


def test_what_ranks_that_were_done_leave_is_waited_for_whatever_the_budget_says() -> None:
    reason = {"reason": Reason.DONE, "outcome": State.SUCCEEDED}
    seen = budgeted(State.STOPPING, *STOPPING, cost_usd=10.0, columns=reason, parts=[part(row) for row in STOPPING])

    assert brief(decide(seen, NOW)) == ["wait 5"]


def test_a_budget_cap_holds_offline_too_by_the_highest_rate_that_is_billed() -> None:
    """The lease of every node carries when to stop: what is left by what all nodes bill, less the time of the stop."""
    dearer = (on_cloud_node(rank=0, billed_usd_per_hour=12.0), on_cloud_node(rank=1))

    [limit] = settled(budgeted(State.RUNNING, *dearer, cost_usd=1.0, up=4)).writes

    assert isinstance(limit, Limit)
    assert limit.stop_at is not None
    assert (limit.stop_at - NOW).total_seconds() == pytest.approx(9 / 18 * 3600 - 60 + 5)


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING])
@pytest.mark.parametrize("parts", [[End.STOPPED] * 2, [End.STOPPED, End.FAILED]], ids=["both", "one for the other"])
def test_a_gang_that_stops_for_its_limit_a_moment_before_the_service_is_not_recovered(
    state: State, parts: list[End]
) -> None:
    """Nodes count from the moment they asked, the service from that of its answer: they are never the later ones."""
    told = [part(row, end, **WHY[end]) for row, end in zip(BOTH, parts, strict=True)]

    a_moment_before = decide(budgeted(state, *BOTH, cost_usd=9.79, parts=told), NOW)
    long_before = decide(budgeted(state, *BOTH, cost_usd=9.7, parts=told), NOW)

    assert stopped_for(a_moment_before) is Reason.BUDGET_EXHAUSTED
    assert brief(long_before)[-1] == "node_lost"


def test_a_duration_that_is_nearly_over_is_not_begun_again_by_nodes_that_stopped_for_it() -> None:
    spec = on_cloud(limits={"max_duration_s": 300})
    row = job(State.RUNNING, memory=STARTED, **{**CLOUDY, "spec": spec, "started_at": ago(298)})
    told = [part(node, End.STOPPED, reason="lease_expired") for node in BOTH]

    assert brief(decide(view(row, *BOTH, parts=told), NOW)) == ["stop duration_exceeded"]


def test_a_node_that_is_lost_when_the_money_is_spent_is_not_blamed_for_the_end() -> None:
    """Nor are recoveries that are not allowed: it would have stopped without it."""
    spec = on_cloud(limits={"max_cost_usd": 10.0}, recovery={"node_recoveries": 0})
    gone = on_cloud_node(rank=1, condition="gone")

    decided = decide(budgeted(State.RUNNING, BOTH[0], gone, cost_usd=9.81, columns={"spec": spec}), NOW)

    assert stopped_for(decided) is Reason.BUDGET_EXHAUSTED


def test_a_new_start_after_a_failover_carries_what_is_left_and_not_the_whole() -> None:
    ready = on_cloud_node(run_generation=1, desired_phase=Phase.STOP)
    drained = [part(ready, End.STOPPED, drained=True)]
    alone = {"plan": as_json(plan_on(CLOUD_OFFER))}

    [run] = settled(budgeted(State.RECOVERING, ready, cost_usd=4.0, parts=drained, columns=alone)).writes

    assert isinstance(run, Run)
    assert run.stop_at is not None
    assert (run.stop_at - NOW).total_seconds() == pytest.approx(6 / 6 * 3600 - 60 + 5)


@pytest.mark.parametrize(
    ("limits", "carried", "held"),
    [
        ({"max_cost_usd": 1.0}, 300 - 60 + 5, 300 - 60 + 5),
        ({"max_cost_usd": 2.0}, 300 - 60 + 5, 600 - 60 + 5),
        ({"max_duration_s": 900}, 900 + 600 - 100 + 5, 900 + 600 - 100 + 5),
        ({"max_duration_s": 1800}, 900 + 600 - 100 + 5, 1800 + 600 - 100 + 5),
    ],
)
def test_nodes_that_prepare_hear_of_limits_that_were_changed_and_of_nothing_else(
    limits: dict[str, float], carried: float, held: float
) -> None:
    """Else they would stop for the old ones, before their ranks ever ran."""
    nodes = [replace(node, stop_at=ago(-carried), desired_at=ago(100)) for node in BOTH]
    seen = view(job(State.STARTING, memory=STARTED, **{**CLOUDY, "spec": on_cloud(limits=limits)}), *nodes)

    writes = settled(seen).writes

    assert [write.stop_at for write in writes if isinstance(write, Limit)] == [ago(-held)] * (held != carried)


def test_duration_counts_from_the_first_run_also_after_a_failover() -> None:
    spec = on_cloud(limits={"max_duration_s": 200})
    row = job(State.RECOVERING, memory=STARTED, **{**CLOUDY, "spec": spec, "started_at": ago(201)})

    assert brief(decide(view(row, market=market(CLOUD_OFFER)), NOW)) == ["stop duration_exceeded"]


def test_nodes_that_are_on_their_way_out_still_count() -> None:
    leaving = on_cloud_node(NodeState.RELEASING, rank=1, run_generation=1)

    assert brief(decide(budgeted(State.RUNNING, on_cloud_node(), leaving, cost_usd=9.81), NOW)) == [
        "stop budget_exhausted"
    ]


def settled(seen: View) -> Settle:
    decided = decide(seen, NOW)
    assert isinstance(decided, Settle)
    return decided
