"""A micro-batch that the plan chose and that ran out of memory: the job goes on with a smaller one by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shunter_planner.predictions import Prediction
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


def expecting(seen: View, **prediction: Any) -> View:
    """The same job under a plan that predicted memory."""
    plan = replace(seen.plan, prediction=Prediction(**prediction))
    return replace(seen, job=replace(seen.job, plan=as_json(plan)))


def message_of(seen: View) -> str:
    decision = decide(seen, NOW)
    assert isinstance(decision, Settle)
    return decision.change.message or ""


def test_the_end_for_want_of_memory_is_told_beside_what_the_plan_had_expected() -> None:
    parts = {"weights": 14.9, "activations": 40.25, "optimizer": 5.0, "buffers": 0.0, "logits": 2.5, "reserve": 1.0}

    told = message_of(
        expecting(ran_out(micro_size=8), micro_size=8, need_gib=63.65, available_gib=79.1, memory_gib=parts)
    )

    assert told.splitlines()[1] == (
        "the plan had expected 63.65 GiB a rank of the 79.10 GiB there with 8 samples at once: activations 40.25, "
        "weights 14.90, optimizer 5.00, logits 2.50"
    )


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(ran_out(micro_size=8), id="a plan that predicted nothing"),
        pytest.param(expecting(ran_out(reason="user_error"), need_gib=3.0), id="another failure"),
    ],
)
def test_no_expectation_is_told_where_there_is_none_or_it_explains_nothing(seen: View) -> None:
    assert "expected" not in message_of(seen)


def test_another_failure_of_the_program_changes_no_batch() -> None:
    assert brief(decide(ran_out(reason="user_error"), NOW)) == ["stop user_error"]
