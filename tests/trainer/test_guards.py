"""What watches over a training, and what it tells the agent."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from shunter_trainer.failures import CheckpointFault, NonFinite, PeerLost, UserFault, explain
from shunter_trainer.guards.finite import FiniteGuard
from shunter_trainer.reports import Reports, progress_line

HANGING = """
import sys, threading, time
from shunter_trainer.guards.hang import HangWatchdog
watchdog = HangWatchdog(lambda reason, message: print(reason, message, flush=True), least_s={least_s})
watchdog.start()
for _ in range(3):
    watchdog.pace(0.001)
    time.sleep(0.05)
{then}
"""


def run_hanging(then: str, least_s: float = 0.3) -> subprocess.CompletedProcess[str]:
    program = HANGING.format(then=then, least_s=least_s)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)


def test_a_rank_that_stands_still_shows_where_and_ends() -> None:
    run = run_hanging("def stuck_here():\n    time.sleep(20)\nstuck_here()")

    assert run.returncode == 1
    assert run.stdout.startswith("hang No step ended for")
    assert "in stuck_here" in run.stderr


WAITS_FOR_OTHERS = """
exec(compile("def all_reduce():\\n    time.sleep(60)", "/env/torch/distributed.py", "exec"), globals())
def backward():
    all_reduce()
backward()
"""


def test_a_rank_that_waits_in_torch_says_so_and_lets_others_end_first() -> None:
    run = run_hanging(WAITS_FOR_OTHERS)

    assert run.returncode == 1
    assert re.search(r"It stood in backward \(<string>:\d+\) and waited in torch there \(all_reduce\)\.", run.stdout)


STUCK_WITH_THE_LOCK = """
import ctypes, faulthandler
timers_s, wind_up = [], faulthandler.dump_traceback_later
faulthandler.dump_traceback_later = lambda after_s, **rest: (timers_s.append(after_s), wind_up(after_s, **rest))
def stuck_here():
    ctypes.PyDLL(None).sleep(60)
while not timers_s or timers_s[-1] > 60:  # until it is wound up for steps
    watchdog.pace(0.001)
    time.sleep(0.05)
stuck_here()
"""


@pytest.mark.slow
def test_a_rank_that_hangs_with_pythons_lock_in_its_hands_shows_where_and_ends_too() -> None:
    run = run_hanging(STUCK_WITH_THE_LOCK, least_s=2.0)

    assert (run.returncode, run.stdout) == (1, "")
    assert re.search(r'"<string>", line \d+ in stuck_here', run.stderr)


def test_a_slow_phase_is_no_hang() -> None:
    run = run_hanging("with watchdog.slow_phase('checkpoint'):\n    time.sleep(1.5)\nprint('done')")

    assert (run.returncode, run.stdout) == (0, "done\n")


def test_after_a_slow_phase_steps_are_watched_again() -> None:
    run = run_hanging("with watchdog.slow_phase('checkpoint'):\n    pass\ntime.sleep(20)")

    assert run.returncode == 1


def test_slow_steps_are_allowed_to_be_slow() -> None:
    run = run_hanging("for _ in range(80): watchdog.pace(0.1)\ntime.sleep(1.2)\nprint('done')")

    assert (run.returncode, run.stdout) == (0, "done\n")


@pytest.mark.parametrize(
    ("losses", "healthy"),
    [([1.0, 2.0], True), ([math.nan, 2.0], True), ([1.0, math.nan], False), ([math.inf] * 4, False)],
)
def test_a_few_bad_steps_are_borne(losses: Sequence[float], healthy: bool) -> None:
    guard = FiniteGuard(patience_steps=5)

    guard.check(1, losses, [None] * len(losses))

    assert guard.healthy is healthy


def test_bad_steps_are_counted_over_several_looks() -> None:
    guard = FiniteGuard(patience_steps=3)
    guard.check(1, [1.0, math.nan], [None, None])

    with pytest.raises(NonFinite, match="At step 4 the norm of the gradients is inf, and so in 3 steps in a row"):
        guard.check(3, [math.inf, 1.0], [1.0, math.inf])


@pytest.mark.parametrize(
    ("error", "reason", "hint"),
    [
        (UserFault("/workload/model", "wrong"), "user_error", "/workload/model: wrong"),
        (NonFinite("nan"), "non_finite_loss", "nan"),
        (CheckpointFault("torn"), "checkpoint_failed", "torn"),
        (PeerLost("gone"), "peer_lost", "gone"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to"), "out_of_memory", "micro_size"),
        (MemoryError(), "out_of_memory", "micro_size"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"), "out_of_memory", "micro_size"),
        (RuntimeError("[/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]"), "peer_lost", "peer"),
        (torch.distributed.DistBackendError("NCCL communicator was aborted"), "peer_lost", "NCCL"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "user_error", "RuntimeError: mat1"),
        (ValueError("Connection reset by peer"), "user_error", "ValueError"),
        (RuntimeError("Expected to have finished reduction in the prior iteration"), "user_error", "find_unused"),
        (RuntimeError("Sharding propagation failed for aten.pow_.Scalar"), "user_error", "or strategy ddp"),
        (KeyError("x"), "user_error", "KeyError: 'x'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_failure_has_a_reason_and_a_message(error: BaseException, reason: str, hint: str) -> None:
    told, message = explain(error)

    assert told == reason
    assert hint in message


def test_a_point_holds_finite_numbers_only(tmp_path: Path) -> None:
    reports = Reports(tmp_path / "metrics.jsonl", is_main=True)

    reports.point(3, {"loss": 1.5, "grad_norm": math.inf, "val_loss": math.nan}, total_steps=9, eta_s=None)

    reports.close()
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert line.keys() == {"step", "loss", "total_steps", "at"}


def test_other_ranks_report_failures_but_no_points(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    reports = Reports(tmp_path / "metrics.jsonl", is_main=False)

    reports.point(3, {"loss": 1.5}, total_steps=9, eta_s=1.0)
    reports.say("step 3/9")
    reports.failure("user_error", "wrong")
    reports.close()

    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {
        "event": "failure",
        "reason": "user_error",
        "message": "wrong",
    }
    assert json.loads((tmp_path / "error.json").read_text())["message"]["message"] == "wrong"
    assert capsys.readouterr().out == ""


def test_progress_is_one_short_line() -> None:
    line = progress_line(3, 9, {"loss": 2.34567, "lr": 0.0003, "tokens_per_s": 5123.4}, 61.2)

    assert line == "step 3/9  loss 2.3457  lr 0.0003  tokens/s 5123  eta 61 s"
