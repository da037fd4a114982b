"""What follows from a provider's answer. Pure."""

from __future__ import annotations

from typing import Any

import pytest
from shunter_planner.values import as_json
from shunter_providers.advice import ADVICE
from shunter_providers.contract import Fault, NodeCondition, NodeView, ProviderError, Scope
from shunter_schemas.api import ProviderRefusal
from shunter_schemas.states import NodeState, Reason, State
from shunter_workers.decisions import (
    Act,
    Close,
    Create,
    Created,
    Found,
    Look,
    Looked,
    Prove,
    Result,
    Search,
    Terminate,
    Terminated,
)
from shunter_workers.settling import settle
from shunter_workers.view import Memory, View
from support.views import CLOUD_OFFER, NOW, ago, brief, job, node, on_cloud, on_cloud_node, plan_on, view

MADE = node(NodeState.CREATING, create_deadline_at=ago(-9))
READY = node(condition=None)
OTHER = on_cloud_node(NodeState.BOOTING, 1)
LEAVING = node(NodeState.RELEASING)
CLOUDY: dict[str, Any] = {"spec": on_cloud(), "plan": as_json(plan_on(CLOUD_OFFER, num_nodes=2))}


def seen_as(condition: NodeCondition) -> NodeView:
    return NodeView("handle-9", "shn-abcdef-0", condition)


def after_create(error: ProviderError, *, failures: int = 0, started: bool = False) -> tuple[View, Act, ProviderError]:
    memory = Memory(ordered_generation=1, create_failures=failures, started=started)
    first = on_cloud_node(NodeState.CREATING)
    return view(job(State.PROVISIONING, memory=memory, **CLOUDY), first, OTHER), Act(Create(first)), error


@pytest.mark.parametrize(
    ("seen", "act", "result", "words"),
    [
        pytest.param(
            view(job(State.PROVISIONING), MADE),
            Act(Create(MADE)),
            Created("handle-9"),
            ["handle handle-9"],
            id="a node was made",
        ),
        pytest.param(
            view(job(State.PROVISIONING), MADE),
            Act(Search(MADE)),
            Found(seen_as(NodeCondition.PENDING)),
            ["handle handle-9"],
            id="a search found it",
        ),
        pytest.param(
            view(job(State.PROVISIONING), MADE),
            Act(Search(MADE)),
            Found(None),
            ["wait 5"],
            id="a search does not find it yet",
        ),
        pytest.param(
            view(job(State.STOPPING), LEAVING),
            Act(Prove(LEAVING)),
            Looked(seen_as(NodeCondition.GONE), "me"),
            ["close node_0 absent"],
            id="a node is proven gone",
        ),
        pytest.param(
            view(job(State.STOPPING), LEAVING),
            Act(Prove(LEAVING)),
            Looked(seen_as(NodeCondition.RUNNING), "me"),
            [],
            id="a node that no listing shows runs all the same",
        ),
        pytest.param(
            view(job(State.PROVISIONING), READY),
            Act(Look(READY)),
            Looked(seen_as(NodeCondition.RUNNING), "me"),
            ["seen running"],
            id="a node that is to be let go is shown",
        ),
        pytest.param(
            view(job(State.PROVISIONING), READY),
            Act(Look(READY)),
            Looked(seen_as(NodeCondition.GONE), "me"),
            ["seen unknown"],
            id="one look without a node proves nothing",
        ),
        pytest.param(
            view(job(State.PROVISIONING), READY),
            Act(Look(READY)),
            ProviderError(Fault.RATE_LIMITED, "slow down", retry_after_s=60),
            ["seen unknown"],
            id="a look that fails is not repeated",
        ),
    ],
)
def test_an_answer_is_settled(seen: View, act: Act, result: Result, words: list[str]) -> None:
    assert brief(settle(seen, act, result, NOW)) == words


LET_GO = ["close node_0 refused", "release node_0,node_1", "capacity_lost"]


def _title(value: Any) -> str:
    return f"{value.fault}{' in doubt' * value.may_have_created}" if isinstance(value, ProviderError) else ""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ProviderError(Fault.AMBIGUOUS, "time-out"), ["unknown node_0"]),
        (ProviderError(Fault.CONFLICT, "name taken"), ["unknown node_0"]),
        (ProviderError(Fault.TRANSIENT, "reset", may_have_created=True), ["unknown node_0"]),
        (ProviderError(Fault.RATE_LIMITED, "slow down", retry_after_s=7), ["close node_0 refused"]),
        (ProviderError(Fault.TRANSIENT, "503"), ["close node_0 refused"]),
        (ProviderError(Fault.NOT_FOUND, "no such image"), ["close node_0 refused"]),
        (
            ProviderError(Fault.NO_CAPACITY, "none left"),
            LET_GO,
        ),
        (ProviderError(Fault.QUOTA, "8 of 8"), LET_GO),
        (ProviderError(Fault.AUTH, "revoked"), LET_GO),
        (ProviderError(Fault.INVALID, "bad disk"), ["close node_0 refused", "stop invalid"]),
    ],
    ids=lambda value: (
        f"{value.fault}{' in doubt' * value.may_have_created}" if isinstance(value, ProviderError) else ""
    ),
)
def test_a_failed_create_is_answered_by_whose_fault_it_is(error: ProviderError, words: list[str]) -> None:
    assert brief(settle(*after_create(error), NOW)) == words


@pytest.mark.parametrize(
    ("fault", "reason", "scope", "for_s"),
    [
        (Fault.NO_CAPACITY, Reason.NO_CAPACITY, Scope.ZONE, 120),
        (Fault.QUOTA, Reason.QUOTA, Scope.REGION, 600),
        (Fault.AUTH, Reason.PROVIDER_AUTH, Scope.ACCOUNT, 3600),
        (Fault.PAYMENT, Reason.PROVIDER_PAYMENT, Scope.ACCOUNT, 3600),
    ],
)
def test_what_cannot_be_had_is_avoided_as_far_as_the_fault_reaches(
    fault: Fault, reason: Reason, scope: Scope, for_s: float
) -> None:
    settled = settle(*after_create(ProviderError(fault, "no", scope=scope)), NOW)

    assert settled.memory is not None
    (block,) = settled.memory["blocks"]
    assert (block["instance"], block["region"], block["scope"]) == ("cloud", "eu-1", scope)
    assert (block["reason"], block["until"] - NOW.timestamp()) == (reason, for_s)


@pytest.mark.parametrize("fault", [*Fault])
def test_the_operator_is_told_of_what_only_he_can_mend_and_the_way_out(fault: Fault) -> None:
    settled = settle(*after_create(ProviderError(fault, "no", scope=Scope.REGION)), NOW)

    told = [write.proof["refusal"] for write in settled.writes if isinstance(write, Close) and "refusal" in write.proof]
    if fault not in (Fault.AUTH, Fault.PAYMENT, Fault.QUOTA):
        assert told == []
        return
    (refusal,) = told
    assert ProviderRefusal.model_validate(refusal).at == NOW
    assert (refusal["fault"], refusal["scope"]) == (fault, Scope.REGION)
    assert refusal["detail"] == f"no - {ADVICE[fault]}"


def test_a_passing_fault_is_tried_again_with_growing_patience_and_then_given_up() -> None:
    error = ProviderError(Fault.TRANSIENT, "503")

    waits = [settle(*after_create(error, failures=failures), NOW).change.next_in_s for failures in (0, 1, 2)]
    given_up = settle(*after_create(error, failures=3), NOW)

    assert waits == [2, 4, 8]
    assert brief(given_up)[-1] == "capacity_lost"


def test_a_rate_limit_is_waited_for_and_is_no_failure() -> None:
    settled = settle(*after_create(ProviderError(Fault.RATE_LIMITED, "slow down", retry_after_s=7), failures=3), NOW)

    assert settled.change.next_in_s == 7
    assert settled.memory is not None
    assert settled.memory["create_failures"] == 3
    assert settled.memory["not_before"] == NOW.timestamp() + 7


def test_a_gang_that_ran_before_recovers_instead_of_starting_over() -> None:
    settled = settle(*after_create(ProviderError(Fault.NO_CAPACITY, "none left"), started=True), NOW)

    assert brief(settled) == ["close node_0 refused", "node_lost"]
    assert settled.change.set == {"node_recoveries": 1}


@pytest.mark.parametrize("answer", [Terminated(True), Terminated(False), ProviderError(Fault.TRANSIENT, "503")])
def test_whatever_a_terminate_answers_the_row_stays_open_and_is_asked_about_again(answer: Result) -> None:
    seen = view(job(State.STOPPING, memory=Memory(asked={"other": 1.0})), LEAVING)

    settled = settle(seen, Act(Terminate(LEAVING)), answer, NOW)

    assert settled.writes == ()
    assert settled.memory is not None
    assert settled.memory["asked"] == {"other": 1.0, "node_0": NOW.timestamp()}


def test_a_provider_that_fails_is_told_of_in_the_jobs_history() -> None:
    seen = view(job(State.STOPPING), LEAVING)

    settled = settle(seen, Act(Prove(LEAVING)), ProviderError(Fault.AUTH, "revoked", retry_after_s=30), NOW)

    ((kind, data),) = settled.change.events
    assert (kind, data["fault"], data["detail"]) == ("node.provider_error", "auth", "revoked")
    assert settled.change.next_in_s == 30


def test_the_proof_names_the_account_that_looked() -> None:
    seen = view(job(State.STOPPING), LEAVING)

    settled = settle(seen, Act(Prove(LEAVING)), Looked(seen_as(NodeCondition.GONE), LEAVING.account), NOW)

    (close,) = settled.writes
    assert close.proof["account"] == LEAVING.account  # type: ignore[union-attr]


def test_a_look_by_another_account_proves_nothing_is_told_of_and_not_repeated_at_once() -> None:
    settled = settle(
        view(job(State.STOPPING), LEAVING), Act(Prove(LEAVING)), Looked(seen_as(NodeCondition.GONE), "theirs"), NOW
    )

    assert settled.writes == ()
    ((kind, data),) = settled.change.events
    assert (kind, data["fault"]) == ("node.provider_error", "auth")
    assert data["detail"] == "the node belongs to account me, and the credentials are those of theirs"
    assert settled.change.next_in_s == 60.0
