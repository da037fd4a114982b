"""A pause and what ends it, decided from every state. Pure: made-up rows in, a few words out."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import Health, NodeState, State
from shunter_store.node.gang import End
from shunter_workers.deciding import decide
from shunter_workers.decisions import Settle
from shunter_workers.view import Memory, View
from support.views import (
    NOW,
    OFFER,
    ago,
    brief,
    document,
    job,
    market,
    node,
    node_failure,
    part,
    user_failure,
    view,
)

PAUSED: dict[str, Any] = {"pause_requested_at": ago(1)}
CANCELLED: dict[str, Any] = {"cancel_requested_at": ago(1)}
ORDERED = Memory(ordered_generation=1, started=True)
PAUSING = replace(ORDERED, pausing=1)
RESTING = replace(ORDERED, paused_at=ago(60).timestamp())
TOLD = node(desired_phase=Phase.STOP, desired_at=ago(2))
RESTARTS = document(recovery={"user_restarts": 1})
HOUR_LONG = document(limits={"max_duration_s": 3600, "max_queue_s": 3600})

ROWS: list[tuple[str, View, list[str]]] = [
    # --- to rest
    ("running", view(job(State.RUNNING, **PAUSED), node(), up=2), ["pause"]),
    ("starting", view(job(State.STARTING, **PAUSED), node()), ["pause"]),
    ("provisioning", view(job(State.PROVISIONING, **PAUSED), node(NodeState.INTENDED)), ["pause"]),
    ("running and cancelled", view(job(State.RUNNING, **PAUSED, **CANCELLED), node()), ["stop cancelled_by_user"]),
    ("running and done", view(job(State.RUNNING, **PAUSED), node(), parts=[part(node(), End.DONE)]), ["stop done"]),
    (
        "running and failed",
        view(job(State.RUNNING, **PAUSED), node(), parts=[user_failure(node())]),
        ["stop user_error"],
    ),
    (
        "running and its node lost",
        view(job(State.RUNNING, **PAUSED), node(), parts=[node_failure(node())]),
        ["tell stop node_0", "node_lost"],
    ),
    (
        "its nodes do not know of it",
        view(job(State.RECOVERING, memory=PAUSING, **PAUSED), node()),
        ["tell stop node_0"],
    ),
    ("its nodes save and upload", view(job(State.RECOVERING, memory=PAUSING, **PAUSED), TOLD), ["wait 5"]),
    (
        "its nodes are drained",
        view(job(State.RECOVERING, memory=PAUSING, **PAUSED), TOLD, parts=[part(TOLD, End.STOPPED, drained=True)]),
        ["tell release node_0", "release node_0"],
    ),
    (
        "a node never came up",
        view(job(State.RECOVERING, memory=PAUSING, **PAUSED), node(NodeState.BOOTING)),
        ["tell release node_0", "release node_0"],
    ),
    (
        "a node is on its way out",
        view(job(State.RECOVERING, memory=PAUSING, **PAUSED), node(NodeState.RELEASING, run_generation=1)),
        ["terminate node_0"],
    ),
    ("no node is left", view(job(State.RECOVERING, memory=PAUSING, **PAUSED)), ["paused"]),
    (
        "the ranks were done before they heard of it",
        view(job(State.RECOVERING, memory=PAUSING, **PAUSED), TOLD, parts=[part(TOLD, End.DONE)]),
        ["stop done"],
    ),
    (
        "the program failed before it heard of it",
        view(job(State.RECOVERING, memory=PAUSING, **PAUSED), TOLD, parts=[user_failure(TOLD)]),
        ["stop user_error"],
    ),
    (
        "the program failed before it heard of it and may start again",
        view(job(State.RECOVERING, RESTARTS, memory=PAUSING, **PAUSED), TOLD, parts=[user_failure(TOLD)]),
        ["wait 5"],
    ),
    (
        "it recovered from a failure when the pause came",
        view(job(State.RECOVERING, user_restarts=1, memory=ORDERED, **PAUSED), TOLD, parts=[user_failure(TOLD)]),
        ["wait 5"],
    ),
    (
        "cancelled on the way to rest",
        view(job(State.RECOVERING, memory=PAUSING, **PAUSED, **CANCELLED), TOLD),
        ["stop cancelled_by_user"],
    ),
    # --- at rest
    ("queued", view(job(State.QUEUED, **PAUSED), market=market(OFFER)), []),
    ("at rest", view(job(State.QUEUED, memory=RESTING, **PAUSED), market=market(OFFER)), ["wait"]),
    (
        "at rest longer than any limit of time",
        view(
            job(State.QUEUED, HOUR_LONG, memory=RESTING, started_at=ago(9999), created_at=ago(9999), **PAUSED),
            market=market(OFFER),
        ),
        ["wait"],
    ),
    ("cancelled at rest", view(job(State.QUEUED, memory=RESTING, **PAUSED, **CANCELLED)), ["stop cancelled_by_user"]),
    # --- and on
    ("resumed", view(job(State.QUEUED, memory=RESTING), market=market(OFFER)), []),
    (
        "resumed while its ranks still stop",
        view(job(State.RECOVERING, memory=PAUSING), TOLD, parts=[part(TOLD)]),
        ["wait 58"],
    ),
    (
        "resumed when its ranks had stopped",
        view(job(State.RECOVERING, memory=PAUSING), TOLD, parts=[part(TOLD, End.STOPPED, drained=True)]),
        ["run 2 on node_0", "nodes_ready"],
    ),
    (
        "resumed when its ranks were done",
        view(job(State.RECOVERING, memory=PAUSING), TOLD, parts=[part(TOLD, End.DONE, drained=True)]),
        ["stop done"],
    ),
    (
        "resumed when no node was left",
        view(job(State.RECOVERING, memory=PAUSING), market=market(OFFER)),
        ["intend 0", "planned"],
    ),
]


@pytest.mark.parametrize(("seen", "words"), [pytest.param(seen, words, id=title) for title, seen, words in ROWS])
def test_a_paused_job_is_decided(seen: View, words: list[str]) -> None:
    assert brief(decide(seen, NOW)) == words


def test_a_job_at_rest_says_so_and_has_neither_plan_nor_provider() -> None:
    change = settled(view(job(State.RECOVERING, memory=PAUSING, health=Health.UNREACHABLE, **PAUSED))).change

    assert change.set["waiting"]["reason"] == "paused"
    assert (change.set["plan"], change.set["provider"], change.set["health"]) == (None, None, Health.OK)


def test_a_job_that_is_paused_in_the_queue_says_so_once_and_waits_to_be_woken() -> None:
    first = settled(view(job(State.QUEUED, **PAUSED), market=market(OFFER)))

    assert first.change.set["waiting"]["reason"] == "paused"
    assert first.change.next_in_s is None
    assert first.memory is not None
    assert first.memory["paused_at"] == NOW.timestamp()


def test_a_resumed_job_plans_in_its_next_step_with_the_rest_counted() -> None:
    woken = settled(view(job(State.QUEUED, memory=replace(RESTING, paused_s=5.0)), market=market(OFFER)))
    assert woken.memory is not None
    awake = Memory(**woken.memory)

    then = decide(view(job(State.QUEUED, memory=awake), market=market(OFFER)), NOW)

    assert (awake.paused_at, awake.paused_s, woken.change.next_in_s) == (None, 65.0, 0.0)
    assert brief(then) == ["intend 0", "planned"]


@pytest.mark.parametrize(
    ("state", "spec", "rested_s", "words"),
    [
        (State.RUNNING, {"max_duration_s": 60}, 0, ["stop duration_exceeded"]),
        (State.RUNNING, {"max_duration_s": 60}, 50, ["wait 10"]),
        (State.QUEUED, {"max_queue_s": 60}, 0, ["stop queue_timeout"]),
        (State.QUEUED, {"max_queue_s": 60}, 50, ["intend 0", "planned"]),
    ],
)
def test_limits_of_time_do_not_count_the_rest(
    state: State, spec: dict[str, Any], rested_s: float, words: list[str]
) -> None:
    started = {"started_at": ago(100)} if state is State.RUNNING else {}
    row = job(state, document(limits=spec), memory=replace(ORDERED, paused_s=rested_s), **started)
    nodes = [node(stop_at=NOW + timedelta(seconds=15))] if state is State.RUNNING else []

    assert brief(decide(view(row, *nodes, market=market(OFFER)), NOW)) == words


def test_a_resumed_job_runs_a_generation_of_its_own() -> None:
    decision = settled(view(job(State.QUEUED, memory=replace(ORDERED, ordered_generation=3)), market=market(OFFER)))

    assert decision.change.set["generation"] == 4


def settled(seen: View) -> Settle:
    decision = decide(seen, NOW)
    assert isinstance(decision, Settle)
    return decision
