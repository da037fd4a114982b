"""A move and what it keeps, decided from every state. Pure: made-up rows in, a few words out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import NodeState, State
from shunter_store.node.gang import End
from shunter_workers.deciding import decide
from shunter_workers.decisions import Settle
from shunter_workers.view import Memory, View
from support.documents import tiny_lm
from support.views import NOW, OFFER, ago, brief, job, market, node, node_failure, part, user_failure, view

FSDP = {"strategy": {"kind": "fsdp"}}
THREE = {"strategy": {"kind": "fsdp"}, "resources": {"cpu_processes": 4}}
STRATEGY: dict[str, Any] = {"move_wish": FSDP, "move_requested_at": ago(1)}
RESOURCES: dict[str, Any] = {"move_wish": THREE, "move_requested_at": ago(1)}
PAUSED: dict[str, Any] = {"pause_requested_at": ago(1)}
CANCELLED: dict[str, Any] = {"cancel_requested_at": ago(1)}
ORDERED = Memory(ordered_generation=1, started=True)
MOVING = replace(ORDERED, moving=1)
TOLD = node(desired_phase=Phase.STOP, desired_at=ago(2))
DRAINED = [part(TOLD, End.STOPPED, drained=True)]
SPEC = tiny_lm()


def moving(state: State, *nodes: Any, wish: dict[str, Any], memory: Memory = MOVING, **seen: Any) -> View:
    return view(job(state, SPEC, memory=memory, **wish), *nodes, **seen)


ROWS: list[tuple[str, View, list[str]]] = [
    # --- on request
    ("running", moving(State.RUNNING, node(), wish=STRATEGY, memory=ORDERED, up=2), ["move"]),
    ("starting", moving(State.STARTING, node(), wish=RESOURCES, memory=ORDERED), ["move"]),
    ("provisioning with orders", moving(State.PROVISIONING, node(), wish=STRATEGY, memory=ORDERED), ["nodes_ready"]),
    (
        "provisioning, told nothing yet, under another strategy",
        moving(State.PROVISIONING, node(NodeState.INTENDED), wish=STRATEGY, memory=ORDERED),
        ["move strategy"],
    ),
    (
        "provisioning on other resources",
        moving(State.PROVISIONING, node(NodeState.INTENDED), wish=RESOURCES, memory=ORDERED),
        ["move"],
    ),
    ("paused too", moving(State.RUNNING, node(), wish=STRATEGY | PAUSED, memory=ORDERED), ["pause"]),
    ("cancelled too", moving(State.RUNNING, node(), wish=STRATEGY | CANCELLED), ["stop cancelled_by_user"]),
    ("done", moving(State.RUNNING, node(), wish=STRATEGY, parts=[part(node(), End.DONE)]), ["stop done"]),
    ("failed", moving(State.RUNNING, node(), wish=STRATEGY, parts=[user_failure(node())]), ["stop user_error"]),
    (
        "a node is lost: it recovers first, under the old document",
        moving(State.RUNNING, node(), wish=STRATEGY, memory=ORDERED, parts=[node_failure(node())]),
        ["tell stop node_0", "node_lost"],
    ),
    # --- a change of strategy keeps the nodes
    ("its ranks run", moving(State.RECOVERING, node(), wish=STRATEGY), ["tell stop node_0"]),
    ("its ranks save and upload", moving(State.RECOVERING, TOLD, wish=STRATEGY, parts=[part(TOLD)]), ["wait 58"]),
    ("its ranks have ended", moving(State.RECOVERING, TOLD, wish=STRATEGY, parts=DRAINED), ["move strategy"]),
    (
        "the document has changed",
        moving(State.RECOVERING, TOLD, wish={}, parts=DRAINED),
        ["run 2 on node_0", "nodes_ready"],
    ),
    # --- other resources or another place do not
    ("its ranks run, and nodes must go", moving(State.RECOVERING, node(), wish=RESOURCES), ["tell stop node_0"]),
    (
        "its ranks have ended, and nodes must go",
        moving(State.RECOVERING, TOLD, wish=RESOURCES, parts=DRAINED),
        ["tell release node_0", "release node_0"],
    ),
    (
        "the old gang is on its way out",
        moving(State.RECOVERING, node(NodeState.RELEASING, run_generation=1), wish=RESOURCES, market=market(OFFER)),
        ["terminate node_0"],
    ),
    (
        "the old gang is gone",
        moving(State.RECOVERING, wish=RESOURCES, market=market(OFFER)),
        ["move strategy,resources"],
    ),
    # --- it ended by itself before it heard of it
    ("done before", moving(State.RECOVERING, TOLD, wish=STRATEGY, parts=[part(TOLD, End.DONE)]), ["stop done"]),
    ("failed before", moving(State.RECOVERING, TOLD, wish=STRATEGY, parts=[user_failure(TOLD)]), ["stop user_error"]),
    # --- nothing runs
    (
        "queued",
        moving(State.QUEUED, wish=RESOURCES, memory=Memory(), market=market(OFFER)),
        ["move strategy,resources"],
    ),
    ("at rest", moving(State.QUEUED, wish=STRATEGY | PAUSED, memory=ORDERED), ["move strategy"]),
    ("cancelled in the queue", moving(State.QUEUED, wish=STRATEGY | CANCELLED), ["stop cancelled_by_user"]),
]


@pytest.mark.parametrize(("seen", "words"), [pytest.param(seen, words, id=title) for title, seen, words in ROWS])
def test_a_move_is_decided(seen: View, words: list[str]) -> None:
    assert brief(decide(seen, NOW)) == words


def test_never_two_gangs_of_one_job_the_new_one_is_planned_only_when_no_row_of_the_old_is_open() -> None:
    leaving = node(NodeState.RELEASING, run_generation=1, absent_scans=1)
    asked = replace(MOVING, asked={leaving.id: NOW.timestamp()})

    decided = decide(moving(State.RECOVERING, leaving, wish=RESOURCES, memory=asked, market=market(OFFER)), NOW)

    assert brief(decided) == ["wait 5"]


def test_a_kept_node_gets_a_new_plan_with_the_document_and_a_new_generation_after_it() -> None:
    seen = moving(State.RECOVERING, TOLD, wish=STRATEGY, parts=DRAINED)

    decided = settled(seen)

    assert decided.change.set["plan"]["strategy"]["kind"] == "fsdp"
    assert decided.change.moved is not None
    assert decided.change.moved.last_generation == 1


def test_what_ran_before_is_told_apart_also_when_nothing_ran() -> None:
    waiting = settled(moving(State.QUEUED, wish=STRATEGY, memory=Memory(), market=market(OFFER)))

    assert waiting.change.moved is not None
    assert waiting.change.moved.last_generation == 0


def settled(seen: View) -> Settle:
    decided = decide(seen, NOW)
    assert isinstance(decided, Settle)
    return decided
