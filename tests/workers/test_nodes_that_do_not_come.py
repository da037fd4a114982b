"""Nodes that their provider calls failed, or keeps in its queue: what becomes of the job, and in whose words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shunter_planner.values import as_json
from shunter_schemas.states import NodeState, Reason, State
from shunter_store.job.lifecycle import Trigger
from shunter_workers.deciding import decide
from shunter_workers.decisions import Settle
from shunter_workers.view import Memory, View
from support.views import CLOUD, CLOUD_OFFER, NOW, ago, brief, job, on_cloud, on_cloud_node, plan_on, user_failure, view

IMAGE = "ghcr.io/acme/train:1"
NO_SUCH_IMAGE = "the image cannot be pulled: manifest unknown"


def awaited(*nodes: dict[str, Any], memory: Memory | None = None, waiting: Any = None, **parts: Any) -> View:
    """A gang of two nodes that boot, each as its provider shows it."""
    shown = [
        on_cloud_node(NodeState.BOOTING, rank, **{"condition": "pending", **changes})
        for rank, changes in enumerate(nodes or ({}, {}))
    ]
    plan = as_json(plan_on(CLOUD_OFFER, num_nodes=2))
    row = job(State.PROVISIONING, on_cloud(**parts), memory=memory or Memory(ordered_generation=1), plan=plan)
    return view(replace(row, waiting=waiting), *shown)


def failed(fault: str | None, reason: str = NO_SUCH_IMAGE, scope: str | None = "offer") -> dict[str, Any]:
    return {
        "condition": "failed",
        "condition_reason": reason,
        "condition_fault": fault,
        "condition_scope": scope if fault else None,
    }


def settled(seen: View) -> Settle:
    decision = decide(seen, NOW)
    assert isinstance(decision, Settle)
    return decision


@pytest.mark.parametrize("started", [False, True], ids=["before it ran", "while it recovers"])
@pytest.mark.parametrize("image", [IMAGE, None])
def test_an_image_that_does_not_exist_ends_the_job_with_the_providers_words(image: str | None, started: bool) -> None:
    memory = Memory(ordered_generation=1, started=started)

    decision = settled(awaited({}, failed("invalid"), memory=memory, environment={"image": image}))

    assert (decision.change.trigger, decision.change.reason) == (Trigger.STOP, Reason.INVALID)
    assert decision.change.message is not None
    assert f"cloud: {NO_SUCH_IMAGE}" in decision.change.message
    assert ("environment.image" in decision.change.message) is (image is not None)


def test_an_image_of_the_operators_that_does_not_exist_sends_the_job_elsewhere() -> None:
    decision = settled(awaited({}, failed("invalid", scope="account")))

    assert decision.change.trigger is Trigger.CAPACITY_LOST
    (block,) = block_of(decision)
    assert (block["scope"], block["reason"]) == ("account", "invalid")
    assert "settings of cloud are wrong" in block["detail"]


@pytest.mark.parametrize(
    ("fault", "scope", "reason", "for_s"),
    [
        ("no_capacity", "region", "no_capacity", 120.0),
        ("quota", "region", "quota", 600.0),
        ("payment", "account", "provider_payment", 3600.0),
        ("auth", "account", "provider_auth", 3600.0),
        (None, None, "no_capacity", 15.0),
        ("of a later release", "offer", "no_capacity", 15.0),
    ],
)
def test_any_other_fault_of_a_node_counts_as_if_the_create_call_had_named_it(
    fault: str | None, scope: str | None, reason: str, for_s: float
) -> None:
    decision = settled(awaited(failed(fault, "No valid host was found", scope)))

    (block,) = block_of(decision)
    assert decision.change.trigger is Trigger.CAPACITY_LOST
    assert (block["reason"], block["scope"]) == (reason, scope if scope and fault in FAULTS else "offer")
    assert block["until"] - NOW.timestamp() == pytest.approx(for_s)
    assert "No valid host was found" in block["detail"]


FAULTS = ("no_capacity", "quota", "payment", "auth")


def test_an_image_with_which_no_gang_comes_up_ends_the_job_where_no_provider_says_why() -> None:
    memories, endings = Memory(ordered_generation=1), []

    for _ in range(3):
        decision = settled(awaited(failed(None, ""), memory=memories, environment={"image": IMAGE}))
        endings.append((decision.change.trigger, decision.change.reason))
        memories = Memory(**(decision.memory or {}))

    assert endings == [(Trigger.CAPACITY_LOST, None), (Trigger.CAPACITY_LOST, None), (Trigger.STOP, Reason.INVALID)]


def test_an_image_that_machines_run_after_their_boot_is_not_why_they_do_not_boot() -> None:
    memory = Memory(ordered_generation=1, boot_failures=9)
    machines = {"cloud": replace(CLOUD, runs_images=True, runs_images_by_docker=True)}
    silent = awaited(failed(None, ""), memory=memory, environment={"image": IMAGE})
    refused = awaited(failed("invalid", "no such flavor"), environment={"image": IMAGE})

    tried, ended = [settled(replace(seen, capabilities=machines)) for seen in (silent, refused)]

    assert tried.change.trigger is Trigger.CAPACITY_LOST
    assert ended.change.reason is Reason.INVALID
    assert IMAGE not in str(ended.change.message)


@pytest.mark.parametrize("reason", ["image_refused", "no_docker"])
def test_an_image_that_a_machine_cannot_run_ends_the_job_as_one_that_a_node_cannot_boot(reason: str) -> None:
    node = on_cloud_node()
    row = job(State.STARTING, on_cloud(environment={"image": IMAGE}), plan=as_json(plan_on(CLOUD_OFFER)))

    decision = settled(view(row, node, parts=[user_failure(node, reason, f"environment.image {IMAGE}: denied")]))

    assert (decision.change.trigger, decision.change.reason) == (Trigger.STOP, Reason.INVALID)
    assert "denied" in str(decision.change.message)


def test_without_an_image_of_its_own_a_job_goes_on_trying() -> None:
    decision = settled(awaited(failed(None, ""), memory=Memory(ordered_generation=1, boot_failures=9)))

    assert decision.change.trigger is Trigger.CAPACITY_LOST


def test_a_node_in_the_providers_queue_is_waited_for_however_long_nodes_take_to_boot_and_the_job_says_so() -> None:
    queued = {"condition": "queued", "condition_reason": "0/5 nodes are available", "created_at": ago(86_400)}

    decision = settled(awaited(queued, {}))

    told = decision.change.set["waiting"]
    assert decision.change.trigger is None
    assert told["reason"] == "queued_at_provider"
    assert "cloud keeps 1 of the gang's nodes in its queue: 0/5 nodes are available" in told["detail"]


def test_the_same_news_of_a_queue_is_written_once_and_taken_back_when_it_is_over() -> None:
    queued = {"condition": "queued"}
    told = settled(awaited(queued, {})).change.set["waiting"]

    again, over = settled(awaited(queued, {}, waiting=told)), settled(awaited(waiting=told))

    assert again.change.set == {}
    assert over.change.set == {"waiting": None}


@pytest.mark.parametrize(
    ("left_queue_s", "gives_up"), [(599, False), (601, True)], ids=["it still boots", "it booted too long"]
)
def test_the_time_to_boot_counts_from_the_end_of_the_queue(left_queue_s: float, gives_up: bool) -> None:
    boots = {"created_at": ago(86_400), "queued_until": ago(left_queue_s)}

    decision = settled(awaited(boots, {}))

    assert (decision.change.trigger is Trigger.CAPACITY_LOST) is gives_up


def test_waiting_in_the_providers_queue_counts_against_the_time_that_the_job_may_wait() -> None:
    queued = {"condition": "queued", "condition_reason": "a queue has not let it in yet"}

    in_time = settled(awaited(queued, {}, limits={"max_queue_s": 160}))
    late = settled(awaited(queued, {}, limits={"max_queue_s": 90}))

    assert in_time.change.next_in_s == pytest.approx(60.0)
    assert brief(late) == ["stop queue_timeout"]
    assert "a queue has not let it in yet" in (late.change.message or "")


def block_of(decision: Settle) -> list[dict[str, Any]]:
    return [dict(block) for block in (decision.memory or {})["blocks"]]
