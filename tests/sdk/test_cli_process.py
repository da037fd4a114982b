"""The command line as a process: signals, pipes, terminals, and how long it takes to start."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from shunter import Client
from shunter_schemas.states import Reason
from support.api_process import ApiProcess
from support.documents import tiny_lm
from support.screens import Screen
from support.waiting import wait_until

SHUNTER = [sys.executable, "-m", "shunter"]


def environment(api: ApiProcess) -> dict[str, str]:
    return {**os.environ, "SHUNTER_DATA_DIR": str(api.data_dir), "TERM": "xterm", "COLUMNS": "120"}


@pytest.fixture
def client(blocking_client: Client) -> Client:
    return blocking_client


@contextmanager
def started(api: ApiProcess, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*SHUNTER, *arguments], env=environment(api), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_on_a_watch_leaves_the_job_running_and_says_how_to_go_on(api: ApiProcess, client: Client) -> None:
    job = client.submit(tiny_lm())
    with started(api, "watch", job.id) as watching:
        assert watching.stdout is not None
        assert job.id in watching.stdout.readline()

        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=20)

    assert watching.returncode == 130
    assert f"shunter watch {job.id}" in said
    assert f"shunter cancel {job.id}" in said
    assert "Traceback" not in said
    assert client.get(job.id).state == "queued"


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(api: ApiProcess, client: Client) -> None:
    job = client.submit(tiny_lm())
    part = api.worker_part(job.id)
    part.run()
    part.print("".join(f"line {n}\n" for n in range(5000)))
    part.end(Reason.DONE)
    with started(api, "logs", job.id) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None

        assert reading.stdout.readline() == "[0] line 0\n"
        reading.stdout.close()
        said = reading.stderr.read()

    assert said == ""


def test_a_terminal_gets_a_live_display_of_step_and_losses(api: ApiProcess, client: Client) -> None:
    job = client.submit(tiny_lm())
    part = api.worker_part(job.id)
    part.run()
    part.report(120, 300, loss=2.25, val_loss=2.5, tokens_per_s=51200.0)
    master, slave = pty.openpty()
    with subprocess.Popen([*SHUNTER, "watch", job.id], env=environment(api), stdout=slave, stderr=slave) as watching:
        os.close(slave)
        screen = Screen(master)
        wait_until(lambda: "51.2k tokens/s" in screen.read(), timeout_s=20, description="the figures are drawn")
        part.end(Reason.DONE)
        wait_until(lambda: "succeeded" in screen.read(), timeout_s=20, description="the end is told")
        screen.drain()
    os.close(master)

    assert watching.returncode == 0
    assert "step 120/300" in screen.text
    assert "val_loss 2.500" in screen.text
    assert "eta 3:00" in screen.text


def test_a_watched_list_of_jobs_is_printed_anew_when_it_changes_until_ctrl_c(api: ApiProcess, client: Client) -> None:
    first = client.submit(tiny_lm())
    with started(api, "jobs", "--watch", "--json") as watching:
        assert watching.stdout is not None
        before = json.loads(watching.stdout.readline())

        second = client.submit(tiny_lm())
        after = json.loads(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=20)

    assert before[0]["id"] == first.id
    assert [job["id"] for job in after[:2]] == [second.id, first.id]
    assert watching.returncode == 0
    assert "Traceback" not in said


def test_a_watched_list_stays_in_its_place_on_a_terminal(api: ApiProcess, client: Client) -> None:
    first = client.submit(tiny_lm())
    master, slave = pty.openpty()
    with subprocess.Popen([*SHUNTER, "jobs", "-w"], env=environment(api), stdout=slave, stderr=slave) as watching:
        os.close(slave)
        screen = Screen(master)
        wait_until(lambda: first.id in screen.read(), timeout_s=20, description="the list is drawn")
        second = client.submit(tiny_lm())
        wait_until(lambda: second.id in screen.read(), timeout_s=20, description="the list is drawn anew")
        watching.send_signal(signal.SIGINT)
        screen.drain()
    os.close(master)

    assert watching.returncode == 0
    up_a_line = "\x1b[1A"
    assert up_a_line in screen.text


def test_help_is_quick_since_it_loads_no_client() -> None:
    modules = "import sys; from shunter.cli import main; main(['--help']); print(*sys.modules)"
    begun = time.perf_counter()
    help_text = subprocess.run([*SHUNTER, "--help"], capture_output=True, text=True, check=True).stdout
    took_s = time.perf_counter() - begun

    loaded = subprocess.run([sys.executable, "-c", modules], capture_output=True, text=True, check=True).stdout.split()

    assert "submit" in help_text
    assert {"httpx", "pydantic", "pathspec", "shunter.client"}.isdisjoint(loaded)
    assert took_s < 20, "a loose bound for a busy machine; it takes about 0.2 s"


def test_roles_take_their_own_options() -> None:
    shown = subprocess.run([*SHUNTER, "up", "--help"], capture_output=True, text=True, check=True).stdout

    assert "--data-dir" in shown
    assert "--port" in shown


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_the_program_answers_without_any_service(argument: str) -> None:
    done = subprocess.run([*SHUNTER, argument], capture_output=True, text=True, check=False)

    assert done.returncode == 0
    assert "shunter" in done.stdout
