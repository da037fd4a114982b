"""Who failed first and whose fault it is."""

from __future__ import annotations

import signal

import pytest
from shunter_agent.reporting.verdict import Ended, blame_disk, explain_stop, judge, only_peers_lost

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
USER = TRACEBACK + "ValueError: no such column"
PEER = TRACEBACK + "RuntimeError: [../gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4711"
NCCL = TRACEBACK + "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
MEMORY = TRACEBACK + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
PORT = TRACEBACK + "torch.distributed.DistNetworkError: EADDRINUSE, message: address already in use"
ABORT = "terminate called after throwing an instance of 'gloo::IoException'\n  what(): Connection reset by peer"
HANG = (
    "some words\nTimeout (0:02:00)!\nThread 0x00007f30ac000700 (most recent call first):\n"
    '  File "loop.py", line 3 in wait\n\nCurrent thread 0x00007f31 [hang-watchdog] (most recent call first):\n'
    '  File "data.py", line 8 in load\n'
)
TORCHRUN = (
    USER
    + "\n"
    + TRACEBACK
    + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \nFailures:\n  <NO_OTHER_FAILURES>\n"
    "Root Cause (first observed failure):\n[0]:\n  time      : now\n  rank      : 3 (local_rank: 1)\n  exitcode  : {}\n"
)


def ended(rank: int, order: int, code: int | None = 1, tail: str = "", **rest: object) -> Ended:
    number = -code if code is not None and code < 0 else None
    return Ended(rank, None if number else code, number, order, tail=tail)._replace(**rest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ends", "rank", "failure_class", "reason"),
    [
        ([ended(0, 1, tail=USER)], 0, "user", "user_error"),
        ([ended(0, 1)], 0, "user", "user_error"),
        ([ended(0, 2, tail=USER), ended(1, 1, tail=USER)], 1, "user", "user_error"),
        ([ended(0, 1, tail=PEER), ended(1, 2, tail=USER)], 1, "user", "user_error"),
        ([ended(0, 1, tail=PEER), ended(1, 2, tail=USER, ours=True)], 1, "user", "user_error"),
        ([ended(0, 1, tail=PEER), ended(1, 2, -15, ours=True)], 0, "node", "peer_lost"),
        ([ended(0, 1, tail=NCCL)], 0, "node", "peer_lost"),
        ([ended(0, 1, -9)], 0, "node", "signal"),
        ([ended(0, 1, -9, tail=USER)], 0, "node", "signal"),
        ([ended(0, 1, -11)], 0, "node", "crash"),
        ([ended(0, 1, -6, tail=USER)], 0, "user", "user_error"),
        ([ended(0, 1, -6, tail=ABORT), ended(1, 2, tail=USER, ours=True)], 1, "user", "user_error"),
        ([ended(0, 1, tail=PEER), ended(1, 2, -9)], 1, "node", "signal"),
        ([ended(0, 1, tail=USER), ended(1, 2, -9, ours=True)], 0, "user", "user_error"),
        ([ended(0, 1, tail=MEMORY)], 0, "user", "out_of_memory"),
        ([ended(1, 1, reason="hang", message="No step ended for 60 s")], 1, "node", "hang"),
        ([ended(1, 1, tail=HANG)], 1, "node", "hang"),
        ([ended(1, 1, tail=HANG + "and went on\n")], 1, "user", "user_error"),
        ([ended(0, 1, tail=PORT)], 0, "node", "port_taken"),
        ([ended(0, 1, reason="non_finite_loss", message="loss is NaN")], 0, "user", "non_finite_loss"),
        ([ended(0, 1, reason="peer_lost"), ended(1, 2, reason="out_of_memory")], 1, "user", "out_of_memory"),
        ([ended(0, 1, reason="disk_full", message="rank 3 …", blamed=3)], 3, "node", "disk_full"),
        ([ended(0, 1, 75)], 0, "node", "interrupted"),
        ([ended(0, 1, 75, tail=USER)], 0, "user", "user_error"),
        ([ended(2, 1, tail=TORCHRUN.format("1 (pid: 7)"))], 3, "user", "user_error"),
        ([ended(2, 1, tail=TORCHRUN.format("-9 (pid: 7)"))], 3, "node", "signal"),
        ([ended(0, 2, 0), ended(1, 1, tail=USER)], 1, "user", "user_error"),
    ],
)
def test_the_verdict_names_rank_class_and_reason(ends: list[Ended], rank: int, failure_class: str, reason: str) -> None:
    verdict = judge(ends)

    assert verdict is not None
    assert (verdict.rank, verdict.failure_class, verdict.reason) == (rank, failure_class, reason)


@pytest.mark.parametrize("ends", [[ended(0, 1, 0)], [ended(0, 1, -15, ours=True)], [ended(0, 1, 75, ours=True)]])
def test_nothing_failed_by_itself(ends: list[Ended]) -> None:
    assert judge(ends) is None


def test_the_message_holds_what_the_rank_said_and_its_last_lines() -> None:
    verdict = judge([ended(4, 1, tail=USER, reason="user_error", message="bad batch")])

    assert verdict is not None
    assert verdict.message == f"rank 4 exited with code 1\nbad batch\n{USER}"


def test_the_message_names_the_rank_that_ended_also_where_another_one_is_to_blame() -> None:
    verdict = judge([ended(0, 1, reason="disk_full", message="rank 3 could not write its part", blamed=3)])

    assert verdict is not None
    assert verdict.message == "rank 0 exited with code 1\nrank 3 could not write its part"


def test_the_message_says_nothing_twice() -> None:
    verdict = judge([ended(0, 1, tail="error: /workload/loss: must be given", message="/workload/loss: must be given")])

    assert verdict is not None
    assert verdict.message == "rank 0 exited with code 1\n/workload/loss: must be given"


def test_a_rank_that_hung_without_a_word_of_its_own_is_said_to_have_hung() -> None:
    verdict = judge([ended(1, 1, tail=HANG)])

    assert verdict is not None
    assert verdict.message.startswith("rank 1 hung and was ended; its stderr shows where its threads stood\nsome words")


def test_a_long_message_keeps_its_end() -> None:
    verdict = judge([ended(0, 1, tail="x" * 20_000 + USER)])

    assert verdict is not None
    assert len(verdict.message.encode()) <= 8192
    assert verdict.message.endswith("no such column")


def test_a_lost_peer_alone_may_not_be_the_cause_yet() -> None:
    assert only_peers_lost([ended(0, 1, tail=PEER), ended(1, 2, 0)])
    assert not only_peers_lost([ended(0, 1, tail=PEER), ended(1, 2, tail=USER)])
    assert not only_peers_lost([ended(1, 2, 0)])


@pytest.mark.parametrize(
    ("ends", "exit_code", "message"),
    [
        ([ended(0, 1, 75), ended(1, 2, 75)], 75, "stopped with a checkpoint saved"),
        ([ended(0, 1, -signal.SIGTERM)], None, "stopped"),
        ([ended(0, 1, 75), ended(1, 2, -9)], None, "ranks 1 did not stop in time and were killed"),
        ([ended(0, 1, 1)], 1, "stopped"),
    ],
)
def test_a_stop_is_explained(ends: list[Ended], exit_code: int | None, message: str) -> None:
    assert explain_stop(ends) == (exit_code, message)


@pytest.mark.parametrize(
    ("reason", "message", "full", "blamed"),
    [
        ("checkpoint_failed", "OSError: [Errno 28] No space left on device", False, True),
        ("user_error", "rank 0 exited with code 1", True, True),
        ("setup_failed", "pip failed", True, True),
        ("agent_error", "[Errno 122] Disk quota exceeded", False, True),
        ("user_error", "ValueError: boom", False, False),
        ("peer_lost", "rank 1 could not write its part (No space left on device)", False, False),
        ("signal", "rank 0 was killed by SIGKILL", True, False),
    ],
)
def test_a_full_disk_is_the_nodes_fault_and_not_the_users(reason: str, message: str, full: bool, blamed: bool) -> None:
    failed = {"failure_class": "user", "reason": reason, "message": message, "exit_code": 1}

    found = blame_disk(failed, full)

    assert found["reason"] == ("disk_full" if blamed else reason)
    assert (found["failure_class"], message in found["message"]) == ("node" if blamed else "user", True)
