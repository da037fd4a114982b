"""The door to the broker, with a real Valkey behind it: bounded, quick to fail, and back by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from shunter_service.up import broker
from shunter_workers.app import make_app
from shunter_workers.hints import Hints
from shunter_workers.settings import WorkerSettings
from support.waiting import wait_until


class Valkey:
    """A server that the test starts, stops and asks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        argv = broker.server_argv(broker.find_server(), self.socket, self.folder)
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        wait_until(lambda: broker.ping(self.socket), description="Valkey answers")

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def queued(self) -> int:
        with Redis(unix_socket_path=str(self.socket)) as client:
            return int(client.llen("shunter:hints"))


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    with tempfile.TemporaryDirectory(prefix="shn") as folder:
        server = Valkey(Path(folder))
        server.start()
        yield server
        server.kill()


@pytest.fixture
def hints(valkey: Valkey, tmp_path: Path) -> Iterator[Hints]:
    settings = WorkerSettings(data_dir=tmp_path, redis_url=broker.url_of(valkey.socket))
    app = make_app(settings)
    made = Hints(app, most=4)
    yield made
    made.close()
    app.close()


async def test_hints_are_left_up_to_a_bound(hints: Hints, valkey: Valkey) -> None:
    assert await hints.publish(1)
    one = valkey.queued()
    assert await hints.publish(10_000)

    assert (one, valkey.queued()) == (1, 4)


async def test_a_dead_broker_is_noticed_at_once_and_used_again_when_it_is_back(hints: Hints, valkey: Valkey) -> None:
    assert await hints.publish(1)
    valkey.kill()

    began = time.monotonic()
    assert not await hints.publish(1)
    assert time.monotonic() - began < 2.5
    valkey.start()

    assert await hints.publish(1) or await hints.publish(1)
    assert valkey.queued() >= 1


async def test_a_broker_that_hangs_holds_nobody_up(hints: Hints, valkey: Valkey) -> None:
    assert await hints.publish(1)
    valkey.signal(signal.SIGSTOP)

    began = time.monotonic()
    answers = [await hints.publish(1) for _ in range(3)]
    took_s = time.monotonic() - began
    valkey.signal(signal.SIGCONT)

    assert answers == [False, False, False]
    assert took_s < 3.0, "the first one waits, the others see that it still hangs"


async def test_a_message_carries_nothing(hints: Hints, valkey: Valkey) -> None:
    await hints.publish(1)

    with Redis(unix_socket_path=str(valkey.socket)) as client:
        message = str(client.lrange("shunter:hints", 0, -1))

    assert "job_" not in message
    assert '"content-type": "application/json"' in message
