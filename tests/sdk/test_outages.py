"""A service that cannot be reached for a while: said soon on the live display or standard error, then gone on."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from shunter import Client
from shunter.retries import Outage
from shunter_schemas.states import Reason
from support.api_process import ApiProcess
from support.both_clients import Kind, client_of
from support.documents import tiny_lm
from support.unsteady_line import UnsteadyLine, unsteady_line
from support.waiting import wait_until
from support.worker_part import WorkerPart

SOON_S = 60.0
"""It is told within about 5 s; the rest is for a busy machine. Until it is told, the line stays as it is."""


@pytest.fixture
def line(api: ApiProcess) -> Iterator[UnsteadyLine]:
    with unsteady_line(api.url) as line:
        yield line


@pytest.fixture
def job_id(blocking_client: Client) -> str:
    return blocking_client.submit(tiny_lm()).id


@pytest.fixture
def part(api: ApiProcess, job_id: str) -> WorkerPart:
    """The hand that moves the job, which runs and has printed a line."""
    part = api.worker_part(job_id)
    part.run()
    part.print("one\n")
    return part


class Command:
    """A command of the line's that goes on while the test does."""

    def __init__(self, api: ApiProcess, line: UnsteadyLine, folder: Path, *arguments: str) -> None:
        self._out, self._err = folder / "out", folder / "err"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
        environment = {**kept, "SHUNTER_URL": line.url, "SHUNTER_API_KEY": api.key, "PYTHONUNBUFFERED": "1"}
        with self._out.open("w") as out, self._err.open("w") as err:
            command = [sys.executable, "-m", "shunter", *arguments]
            self.process = subprocess.Popen(command, env=environment, stdout=out, stderr=err)

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()


Run = Callable[..., Command]


@pytest.fixture
def run(api: ApiProcess, line: UnsteadyLine, tmp_path: Path) -> Iterator[Run]:
    started: list[Command] = []

    def start(*arguments: str) -> Command:
        started.append(Command(api, line, tmp_path, *arguments))
        return started[-1]

    yield start
    for command in started:
        command.process.kill()
        command.process.wait(10)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cut", "freeze"])
def test_a_watch_says_within_seconds_that_nothing_answers_and_goes_on_when_it_is_back(
    line: UnsteadyLine, run: Run, job_id: str, part: WorkerPart, how: str
) -> None:
    watching = run("watch", job_id)
    wait_until(lambda: "running" in watching.out, timeout_s=60, description="it watches")

    getattr(line, how)()
    wait_until(
        lambda: "no answer from the service since" in watching.err, timeout_s=SOON_S, description="the outage is told"
    )
    line.mend()
    wait_until(lambda: "answers again after" in watching.err, timeout_s=60, description="the return is told")
    part.end(Reason.DONE)

    assert watching.process.wait(60) == 0
    assert "succeeded" in watching.out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["logs", "events"])
def test_followed_output_and_events_are_interrupted_by_a_word_and_lose_nothing(
    line: UnsteadyLine, run: Run, job_id: str, part: WorkerPart, command: str
) -> None:
    following = run(command, job_id, "-f", "--json")
    wait_until(lambda: following.out, timeout_s=60, description="it follows")

    line.cut()
    wait_until(
        lambda: "no answer from the service since" in following.err, timeout_s=SOON_S, description="the outage is told"
    )
    part.print("two\n")
    part.end(Reason.DONE)
    line.mend()

    assert following.process.wait(60) == 0
    assert "answers again after" in following.err
    told = [json.loads(text) for text in following.out.splitlines()]
    if command == "logs":
        assert [each["text"] for each in told] == ["one", "two"]
    else:
        assert [each["seq"] for each in told] == list(range(1, len(told) + 1))


@pytest.mark.slow
@pytest.mark.usefixtures("part")
def test_the_live_display_shows_the_outage_with_a_clock(api: ApiProcess, line: UnsteadyLine, job_id: str) -> None:
    environment = {**os.environ, "SHUNTER_URL": line.url, "SHUNTER_API_KEY": api.key, "TERM": "xterm", "COLUMNS": "160"}
    master, slave = pty.openpty()
    seen = ""

    def screen() -> str:
        nonlocal seen
        os.set_blocking(master, False)
        with suppress(OSError):  # nothing is there yet
            seen += os.read(master, 65536).decode(errors="replace")
        return seen

    with subprocess.Popen(
        [sys.executable, "-m", "shunter", "watch", job_id], env=environment, stdout=slave, stderr=slave
    ) as watching:
        os.close(slave)
        try:
            wait_until(lambda: "running" in screen(), timeout_s=60, description="it watches")

            line.cut()
            wait_until(
                lambda: "no answer from the service since" in screen(), timeout_s=SOON_S, description="it is told"
            )
            wait_until(lambda: "(0:06)" in screen(), timeout_s=60, description="its clock goes on")
        finally:
            watching.send_signal(signal.SIGINT)
            watching.wait(10)
    os.close(master)


@pytest.mark.slow
def test_a_waiting_program_is_told_too(
    api: ApiProcess, line: UnsteadyLine, job_id: str, part: WorkerPart, kind: Kind
) -> None:
    told: list[bool] = []

    def away(outage: Outage | None) -> None:
        told.append(outage is not None)
        if outage is None:
            part.end(Reason.DONE)
        elif told == [True]:
            line.mend()

    with client_of(kind, line.url, api.key) as client:
        line.cut()

        ended = client.wait(job_id, away=away, timeout_s=90)

    assert ended.state == "succeeded"
    assert told[0] is True
    assert told[-1] is False
