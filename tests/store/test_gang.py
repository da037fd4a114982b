"""The verdict over a gang, and the facts that it is spoken over."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shunter_schemas.states import FailureClass, NodeState
from shunter_store.node.gang import End, GangFacts, NodeFacts, Outcome, verdict

START = datetime(2026, 1, 1, tzinfo=UTC)


def node(node_rank: int, ended: End | None = None, **given: Any) -> NodeFacts:
    usual: dict[str, Any] = {"state": NodeState.READY, "condition": "running", "member": True, "drained": False}
    values = usual | given
    at = START + timedelta(seconds=values.pop("at", 0))
    return NodeFacts(
        node_id=f"node_{node_rank}",
        node_rank=node_rank,
        ended=ended,
        ended_at=at if ended else None,
        **values,
    )


def failed(rank: int, reason: str, failure_class: FailureClass = FailureClass.USER, **given: Any) -> NodeFacts:
    return node(rank, End.FAILED, rank=rank, reason=reason, failure_class=failure_class, **given)


def done(rank: int, **given: Any) -> NodeFacts:
    return node(rank, End.DONE, **given)


GONE: dict[str, Any] = {"state": NodeState.GONE, "condition": "gone"}
USER, NODE = FailureClass.USER, FailureClass.NODE


@pytest.mark.parametrize(
    ("nodes", "outcome", "rank", "reason"),
    [
        ([], Outcome.RUNNING, None, ""),
        ([node(0), node(1)], Outcome.RUNNING, None, ""),
        ([done(0), node(1)], Outcome.RUNNING, None, ""),
        ([done(0), done(1)], Outcome.DONE, None, ""),
        ([done(0, **GONE), done(1, **GONE)], Outcome.DONE, None, ""),
        ([done(0), node(1, **GONE)], Outcome.NODE_FAILURE, None, "node_lost"),
        ([done(0), node(1, condition="stopped")], Outcome.NODE_FAILURE, None, "node_lost"),
        ([done(0), failed(1, "user_error")], Outcome.USER_FAILURE, 1, "user_error"),
        ([failed(0, "user_error", at=2), failed(1, "out_of_memory", at=1)], Outcome.USER_FAILURE, 1, "out_of_memory"),
        ([failed(0, "peer_lost", NODE, at=1), failed(1, "user_error", at=2)], Outcome.USER_FAILURE, 1, "user_error"),
        ([failed(0, "signal", NODE, at=1), failed(1, "user_error", at=2)], Outcome.USER_FAILURE, 1, "user_error"),
        ([failed(0, "peer_lost", NODE, at=1), failed(1, "signal", NODE, at=2)], Outcome.NODE_FAILURE, 1, "signal"),
        ([failed(0, "peer_lost", NODE), node(1, **GONE)], Outcome.NODE_FAILURE, 0, "peer_lost"),
        ([failed(0, "user_error"), node(1, **GONE)], Outcome.USER_FAILURE, 0, "user_error"),
        ([node(0, End.STOPPED, reason="lease_expired"), node(1)], Outcome.STOPPED, None, "lease_expired"),
        ([node(0, End.STOPPED), done(1)], Outcome.STOPPED, None, ""),
        ([node(0, End.STOPPED), failed(1, "user_error")], Outcome.USER_FAILURE, 1, "user_error"),
        ([done(0), node(1, member=False)], Outcome.DONE, None, ""),
        ([node(0, member=False, **GONE)], Outcome.RUNNING, None, ""),
    ],
)
def test_the_verdict(nodes: list[NodeFacts], outcome: Outcome, rank: int | None, reason: str) -> None:
    said = verdict(GangFacts("job", 1, ranks_up=0, world_size=2, nodes=tuple(nodes)))

    assert (said.outcome, said.rank, said.reason) == (outcome, rank, reason)


def test_a_failure_carries_the_message_and_exit_code_of_the_first_failing_rank() -> None:
    first = failed(1, "user_error", message="ValueError: x", exit_code=1)

    said = verdict(GangFacts("job", 1, 2, 2, (failed(0, "peer_lost", NODE), first)))

    assert (said.node_id, said.message, said.exit_code) == ("node_1", "ValueError: x", 1)


def test_a_gang_that_is_done_carries_what_a_node_has_to_say_of_it() -> None:
    said = verdict(GangFacts("job", 1, 2, 2, (done(0, message="stopped early"), done(1))))

    assert (said.outcome, said.message) == (Outcome.DONE, "stopped early")


@pytest.mark.parametrize(
    ("ranks_up", "world_size", "nodes", "all_up"),
    [
        (1, 2, [node(0), node(1)], False),
        (2, 2, [node(0), node(1)], True),
        (0, 0, [node(0)], False),
        (0, 0, [], False),
        (1, 2, [done(0), done(1)], True),
    ],
)
def test_a_gang_is_up_when_every_rank_is(ranks_up: int, world_size: int, nodes: list[NodeFacts], all_up: bool) -> None:
    assert GangFacts("job", 1, ranks_up, world_size, tuple(nodes)).all_up is all_up
