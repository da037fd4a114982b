"""A node that goes while what its ranks left is being stored: the job says so, whatever its outcome."""

from __future__ import annotations

import pytest
from shunter_schemas.states import NodeState, Reason, State
from shunter_store.job.lifecycle import Trigger
from shunter_store.node.gang import End
from shunter_workers.deciding import decide
from shunter_workers.decisions import Settle
from support.views import NOW, job, node, part, view

DONE = {"reason": Reason.DONE, "outcome": State.SUCCEEDED}
NODES = [node(NodeState.GONE, rank, run_generation=1) for rank in range(3)]


def change_of(*parts: object, **row: object) -> Settle:
    decided = decide(view(job(State.STOPPING, **{**DONE, **row}), parts=list(parts)), NOW)  # type: ignore[arg-type]
    assert isinstance(decided, Settle)
    assert decided.change.trigger is Trigger.NODES_GONE
    return decided


def test_a_success_whose_files_were_not_all_stored_says_so() -> None:
    change = change_of(part(NODES[0], End.DONE)).change

    [(name, data)] = change.events
    assert (name, data["nodes"]) == ("job.results_incomplete", [0])
    assert change.set["message"].startswith("node 0 went before all that was left there could be stored")


def test_it_comes_behind_what_the_job_has_to_say_already() -> None:
    change = change_of(part(NODES[0], End.DONE), part(NODES[1], End.DONE), message="stopped early").change

    assert change.set["message"].startswith("stopped early\nnodes 0, 1 went before")


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([], id="nothing ever ran"),
        pytest.param([part(NODES[0], End.DONE, drained=True)], id="all was stored"),
        pytest.param([part(NODES[0])], id="the node never told of an end: its loss was told"),
        pytest.param([part(NODES[0], End.DONE, member=False)], id="the node ran an earlier start"),
    ],
)
def test_otherwise_nothing_is_said(parts: list[object]) -> None:
    change = change_of(*parts).change

    assert (change.events, change.set) == ([], {})
