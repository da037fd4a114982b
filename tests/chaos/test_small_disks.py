"""Disks that are full: what was acknowledged stays, errors say what is wrong, and all is well once there is room."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from support.own_namespaces import SmallDisk, own_mounts, small_disk
from support.waiting import wait_until

from chaos import record
from chaos.judging import judged
from chaos.programs import DUO, SOLO, counting
from chaos.site import Site, site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CLOUDS = {"sim": {"plugin": "simulated", "settings": {"boot_s": 0.2, "types": [SOLO, DUO]}}}
FULL_FOR_S = 4.0
LINES = 60


@dataclass
class Cramped:
    """A control plane whose data, whose objects and whose nodes lie on small disks of their own."""

    plane: Site
    data: SmallDisk
    objects: SmallDisk
    nodes: SmallDisk
    marks: Path


@contextmanager
def cramped_site(folder: Path) -> Iterator[Cramped]:
    with own_mounts():
        data = small_disk(folder / "data", 48)
        objects = small_disk(folder / "data" / "objects", 8)
        nodes = small_disk(folder / "data" / "simulated" / "sim.nodes", 32)
        (folder / "marks").mkdir()
        with site(folder / "data", "embedded", clouds=CLOUDS) as plane:
            with plane.database() as database:
                record.begin(database)
            yield Cramped(plane, data, objects, nodes, folder / "marks")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cramped]:
    with cramped_site(tmp_path_factory.mktemp("cramped")) as made:
        yield made


@pytest.fixture
def cramped(shared: Cramped) -> Iterator[Cramped]:
    yield shared
    for disk in (shared.data, shared.objects, shared.nodes):
        disk.free()
    shared.plane.wait_until_it_works()


def test_a_service_whose_disk_is_full_accepts_nothing_says_why_and_loses_nothing(cramped: Cramped) -> None:
    plane = cramped.plane
    running = plane.submit(counting(cramped.marks, "running", LINES))
    plane.wait_for(running, "running")
    cramped.data.fill()

    refusals = [plane.http("POST", "/v1/jobs", json=counting(cramped.marks, f"no-{n}", 1)) for n in range(20)]
    time.sleep(FULL_FOR_S)
    cramped.data.free()

    refused = next(answer for answer in refusals if answer.status_code != 201)
    assert refused.status_code == 503
    assert "no room on its disk" in refused.json()["detail"]
    accepted = [answer.json()["id"] for answer in refusals if answer.status_code == 201]
    for job_id in (running, *accepted, plane.submit(counting(cramped.marks, "after", 3))):
        plane.wait_for(job_id, "succeeded", timeout_s=90)
    assert plane.lines_of(running) == [f"line 1 {number}" for number in range(LINES)]
    assert judged(plane, cramped.marks) == []


def test_a_broker_whose_disk_is_full_ends_no_worker(cramped: Cramped) -> None:
    plane = cramped.plane
    roles = dict(plane.roles)
    cramped.data.fill()

    with redis.Redis(unix_socket_path=str(plane.socket)) as broker:
        wait_until(lambda: refuses(broker), description="what was left in the page that it writes in is full too")
    time.sleep(FULL_FOR_S)
    ended = [name for name, process in roles.items() if process.poll() is not None]
    cramped.data.free()

    assert ended == []
    plane.wait_for(plane.submit(counting(cramped.marks, "after-a-refusal", 3)), "succeeded", timeout_s=90)


def test_what_a_run_left_on_its_small_disk_is_there_when_the_disk_is_not(tmp_path: Path) -> None:
    """Else nobody could say why a promise was broken."""
    with own_mounts():
        disk = small_disk(tmp_path / "data", 1)
        (disk.folder / "worker.log").write_text("its last words\n")
        disk.leave()

    assert (tmp_path / "data" / "worker.log").read_text() == "its last words\n"
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.nightly
def test_an_object_store_that_is_full_loses_no_log_line(cramped: Cramped) -> None:
    plane = cramped.plane
    job_id = plane.submit(counting(cramped.marks, "objects", LINES))
    plane.wait_for(job_id, "running")
    cramped.objects.fill()

    wait_until(lambda: count(cramped, "objects") > 20, timeout_s=30, description="the program goes on")
    time.sleep(FULL_FOR_S)
    cramped.objects.free()

    assert plane.wait_for(job_id, "succeeded", timeout_s=90)["generation"] == 1
    assert plane.lines_of(job_id) == [f"line 1 {number}" for number in range(LINES)]
    assert judged(plane, cramped.marks) == []


def test_nodes_whose_disk_is_full_are_replaced_or_wait_and_the_jobs_succeed(tmp_path: Path) -> None:
    """On a site of its own: that a node is replaced, and its points are lost, would be held against the others."""
    with cramped_site(tmp_path) as cramped:
        fill_the_nodes_disk(cramped)


def fill_the_nodes_disk(cramped: Cramped) -> None:
    plane = cramped.plane
    running = plane.submit(counting(cramped.marks, "on-a-full-disk", 20))
    plane.wait_for(running, "running")
    cramped.nodes.fill()
    later = plane.submit(counting(cramped.marks, "begun-on-a-full-disk", 3))

    time.sleep(FULL_FOR_S)
    cramped.nodes.free()

    for job_id in (running, later):
        plane.wait_for(job_id, "succeeded", timeout_s=120)


def refuses(broker: redis.Redis) -> bool:
    """Whether it does to write something."""
    try:
        broker.set("something", "x" * 500)
    except redis.ResponseError:
        return True
    return False


def count(cramped: Cramped, name: str) -> int:
    """How many lines the job's rank has written on its node."""
    logs = cramped.plane.data_dir.glob("simulated/sim.nodes/*/logs/*/rank-0.stdout")
    return max((text.count(b"\n") for text in (log.read_bytes() for log in logs)), default=0)
