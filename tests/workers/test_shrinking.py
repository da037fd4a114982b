"""A micro-batch that the plan chose and that ran out of memory: the job goes on with a smaller one by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shunter_planner.values import as_json, plan_from_json
from shunter_schemas.states import State
from shunter_workers.deciding import decide
from shunter_workers.decisions import Settle
from shunter_workers.view import Memory, View
from support.documents import tiny_lm
from support.views import CLOUD_OFFER, NOW, brief, job, on_cloud_node, plan_on, user_failure, view

BOTH = (on_cloud_node(rank=0), on_cloud_node(rank=1))


def ran_out(micro_size: int | str = "auto", planned: int = 8, reason: str = "out_of_memory") -> View:
    """A training on four GPUs, of which a rank ran out of memory."""
    spec: dict[str, Any] = {**tiny_lm(), "resources": {"nodes": 2, "gpus_per_node": 2}}
    spec["workload"] |= {"batch": {"global_size": 32, "micro_size": micro_size}}
    plan = replace(plan_on(CLOUD_OFFER, num_nodes=2), micro_size=planned, accumulation=8 // planned)
    memory = Memory(ordered_generation=1, started=True)
    row = job(State.RUNNING, spec, memory=memory, plan=as_json(plan), started_at=NOW)
    return view(row, *BOTH, parts=[user_failure(BOTH[0], reason)])


def test_the_same_nodes_begin_again_with_half_of_it_and_as_many_more_passes() -> None:
    decision = decide(ran_out(), NOW)

    assert brief(decision) == ["tell stop node_0,node_1", "node_lost"]
    assert isinstance(decision, Settle)
    plan = plan_from_json(decision.change.set["plan"])
    assert (plan.micro_size, plan.accumulation) == (4, 2)
    assert decision.memory is not None
    assert decision.memory["most_micro_size"] == 4
    assert "user_restarts" not in decision.change.set, "it is no fault of the user's"
    assert "node_recoveries" not in decision.change.set
    ((kind, told),) = [event for event in decision.change.events if event[0] == "job.micro_batch"]
    assert kind == "job.micro_batch"
    assert told["message"] == "8 samples at once ran out of memory; going on with 4 at once, 2 times a step"


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(ran_out(micro_size=8), id="the user chose it"),
        pytest.param(ran_out(planned=1), id="one sample is too much"),
    ],
)
def test_where_nothing_smaller_may_be_tried_the_job_ends(left: View) -> None:
    assert brief(decide(left, NOW)) == ["stop out_of_memory"]


def test_another_failure_of_the_program_changes_no_batch() -> None:
    assert brief(decide(ran_out(reason="user_error"), NOW)) == ["stop user_error"]
