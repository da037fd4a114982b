"""A broker that is killed again and again, or that loses every message: hints come late, and nothing else happens."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest
import redis
from celery import Celery
from shunter_service.up import broker
from shunter_workers.hints import TASK
from support.faulty_line import faulty_line
from support.waiting import wait_until

from chaos.hint_loss import LOSING_HINTS, NOBODYS_QUEUE, QUEUE
from chaos.programs import DUO, SOLO, counting
from chaos.site import Site, free_port, site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CLOUDS = {"sim": {"plugin": "simulated", "settings": {"boot_s": 0.2, "types": [SOLO, DUO]}}}
HEALS_WITHIN_S = 60.0


def programs(*marks: pytest.MarkDecorator) -> Sequence[object]:
    """The embedded broker, and with `marks` Debian's Redis where it is installed."""
    found = shutil.which("redis-server")
    skip = [] if found else [pytest.mark.skip("redis-server is not installed")]
    return [
        pytest.param(broker.find_server(), id="valkey"),
        pytest.param(Path(found or "/"), id="redis", marks=[*marks, *skip]),
    ]


@contextmanager
def at(played: Site) -> Iterator[redis.Redis]:
    with closing(redis.Redis(unix_socket_path=str(played.socket), socket_timeout=5)) as client:
        yield client


def kill_broker(played: Site, random: Random, times: int) -> None:
    """As often, while hints flow; up for a second or two, down for a moment."""
    for _ in range(times):
        time.sleep(random.uniform(0.6, 2.0))
        played.kill("redis")
        time.sleep(random.uniform(0.1, 0.5))
        played.start_redis()
        played.revive()


def takes_hints(played: Site) -> bool:
    """Whether workers take from the queue: what is pushed there vanishes."""
    played.revive()
    with at(played) as client:
        return client.llen(QUEUE) == 0


def attack(folder: Path, program: Path, kills: int, marks: Path) -> None:
    """Kill the broker under a stream of jobs; then hints flow within a minute, and every job has ended well."""
    with site(folder / "data", "embedded", clouds=CLOUDS, broker_program=program) as played:
        random = Random(kills)
        jobs = []
        for number in range(max(2, kills // 6)):
            jobs.append(played.submit(counting(marks, f"job-{number}", 2)))
            kill_broker(played, random, min(6, kills))

        stopped = time.monotonic()
        for job_id in jobs:
            played.wait_for(job_id, "succeeded", timeout_s=60)
        last = played.submit(counting(marks, "last", 2))
        played.wait_for(last, "succeeded", timeout_s=60)
        wait_until(lambda: takes_hints(played), timeout_s=HEALS_WITHIN_S, description="hints are taken again")
        assert time.monotonic() - stopped < HEALS_WITHIN_S + 60.0


@pytest.mark.parametrize("program", programs(pytest.mark.nightly))
def test_a_few_kills_of_the_broker_lose_no_job_and_hints_flow_again(program: Path, tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()

    attack(tmp_path, program, 4, tmp_path / "marks")


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", programs())
def test_sixty_kills_of_the_broker_lose_no_job_and_hints_flow_again(program: Path, tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()

    attack(tmp_path, program, 60, tmp_path / "marks")


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("program", programs())
def test_after_each_of_sixty_kills_of_the_broker_hints_are_taken_within_a_minute(program: Path, tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    random = Random(60)
    with site(tmp_path / "data", "embedded", clouds=CLOUDS, broker_program=program) as played:
        healed_s = [heal_after_a_kill(played, random.uniform(0.05, 3.0)) for _ in range(60)]

        job_id = played.submit(counting(tmp_path / "marks", "last", 2))
        played.wait_for(job_id, "succeeded", timeout_s=60)

    print(f"hints were taken again after {sorted(round(one, 1) for one in healed_s)} s")
    assert max(healed_s) < HEALS_WITHIN_S


def heal_after_a_kill(played: Site, down_s: float) -> float:
    """How long it took, from when the broker was back, until workers took a hint."""
    played.kill("redis")
    time.sleep(down_s)
    played.start_redis()
    began = time.monotonic()
    leave_a_hint(played)
    wait_until(lambda: takes_hints(played), timeout_s=2 * HEALS_WITHIN_S, description="hints are taken again")
    return time.monotonic() - began


def leave_a_hint(played: Site) -> None:
    with Celery("probe", broker=played.environ["SHUNTER_REDIS_URL"], set_as_current=False) as app:
        app.conf.update(broker_transport_options={"global_keyprefix": "shunter:"})
        app.send_task(TASK, queue="hints", retry=False)
    with at(played) as client:
        assert client.llen(QUEUE) <= 1, "it is there, or was taken already"


def test_jobs_move_on_though_every_message_is_lost(tmp_path: Path) -> None:
    """Each push arrives under another name, so that the broker says yes and nobody ever takes it."""
    (tmp_path / "marks").mkdir()
    port = free_port()
    with (
        faulty_line(port) as line,
        site(
            tmp_path / "data",
            "embedded",
            clouds=CLOUDS,
            redis_port=port,
            SHUNTER_REDIS_URL=f"redis://127.0.0.1:{line.port}/0",
        ) as played,
    ):
        line.turn(LOSING_HINTS)
        jobs = [played.submit(counting(tmp_path / "marks", f"job-{number}", 2)) for number in range(4)]

        for job_id in jobs:
            played.wait_for(job_id, "succeeded", timeout_s=60)

        with at(played) as client:
            assert client.llen(NOBODYS_QUEUE) > 0, "messages were sent"
            assert client.llen(QUEUE) == 0, "and none arrived"
