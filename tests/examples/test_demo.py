"""`make demo` without the set-up: what it prints, what it exits with, and that it leaves nothing running."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from shunter import Client, errors
from shunter.transport import Retries
from support.documents import REPOSITORY
from support.up_process import running_up
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.trainer, pytest.mark.timeout(240)]

QUICK = ["--set", "workload.duration.steps=40", "--set", "workload.evaluation.every_steps=20"]
NEVER_ENDING = ["--set", "workload.duration.steps=1000000", "--set", "limits.max_duration_s=8640000"]
FAILING = [
    "--set",
    'workload={"kind": "script", "launcher": "plain", "command": ["sh", "-c", "echo the last words; exit 3"]}',
    "--set",
    'strategy={"kind": "own"}',
]


def command(data_dir: Path, *settings: str) -> list[str]:
    return [sys.executable, str(REPOSITORY / "examples" / "demo.py"), "--data-dir", str(data_dir), *settings]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}


def run(data_dir: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(data_dir, *settings), env=environment(), capture_output=True, text=True, check=False, timeout=200
    )


def answers(data_dir: Path) -> bool:
    try:
        with Client(data_dir=data_dir, timeout_s=2, retries=Retries(tries=1)) as client:
            return client.readiness().status == "ready"
    except errors.ShunterError:
        return False


def on_nodes_of(data_dir: Path) -> list[int]:
    """Processes that live in a node's folder: agents and ranks."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and (process / "cwd").readlink().is_relative_to(data_dir / "nodes"):
                found.append(int(process.name))
    return found


@pytest.mark.nightly
def test_it_trains_shows_where_everything_is_and_stops_what_it_started(tmp_path: Path) -> None:
    done = run(tmp_path, *QUICK)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded after" in done.stdout
    assert "step 40/40  loss " in done.stdout
    assert "val_loss" in done.stdout
    assert "model.safetensors" in done.stdout
    assert len(list((tmp_path / "demo").glob("job_*/model.safetensors"))) == 1
    assert not answers(tmp_path)


def test_a_service_that_runs_already_is_used_and_left_running(tmp_path: Path) -> None:
    with running_up(tmp_path) as up:
        done = run(tmp_path, *QUICK)

        assert done.returncode == 0, done.stdout + done.stderr
        assert f"using the service that runs at {up.url}" in done.stdout
        assert answers(tmp_path)


def test_a_training_that_fails_ends_with_1_and_its_last_lines(tmp_path: Path) -> None:
    done = run(tmp_path, *FAILING)

    assert done.returncode == 1
    assert "[0] the last words" in done.stderr
    assert not answers(tmp_path)


def test_ctrl_c_cancels_the_training_and_stops_the_service(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(tmp_path, *NEVER_ENDING), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "running  step" in line:
            break
    assert on_nodes_of(tmp_path)

    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=100)

    assert process.returncode == 130, said
    assert "cancelling job_" in said
    assert not answers(tmp_path)
    wait_until(lambda: not on_nodes_of(tmp_path), timeout_s=20, description="no agent of the demo is left")
