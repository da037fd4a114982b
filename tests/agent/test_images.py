"""A job's own container image on a machine that runs it itself: a real docker daemon, a registry on the loopback."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shunter_workers.packing import agent_archive
from support import docker_daemon
from support.agents import AgentMaker, AgentProcess, assignment, command
from support.docker_daemon import DockerDaemon
from support.node_service import NodeService
from support.registries import PYTHON, Registry
from support.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(docker_daemon.lacking()), reason=docker_daemon.lacking() or "docker is here"),
    pytest.mark.skipif(not PYTHON.exists(), reason="the system has no Python to make an image of"),
]

LONG_S = 60.0
TALK = "i=0; while true; do i=$((i+1)); echo line $i; /bin/sleep 0.05; done"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerDaemon]:
    running = DockerDaemon(tmp_path_factory.mktemp("docker"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    serving = Registry()
    yield serving
    serving.close()


@pytest.fixture
def make_node(make_agent: AgentMaker, daemon: DockerDaemon, registry: Registry) -> Iterator[Any]:
    """A node that is told to run an image of the registry; its container goes with the test."""
    made: list[AgentProcess] = []

    def make(image: str = "tiny", **launch: Any) -> AgentProcess:
        container = {"image": registry.image(image), "gpus": False, "may_install": False}
        environment = {**daemon.environment, "SHUNTER_AGENT_FAREWELL_S": "1"}
        agent = make_agent(environment=environment, container=container, labels={"job": "job_test"}, **launch)
        (agent.folder / "agent.pyz").write_bytes(agent_archive())
        made.append(agent)
        return agent.start()

    yield make
    for agent in made:
        agent.kill()  # first: it would start them again
    daemon.remove_containers()


def inner_agent(agent: AgentProcess) -> int:
    """The process that runs `contained`, by its command line."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[1:] == [f"{agent.folder}/agent.pyz".encode(), b"contained", b"--dir", str(agent.folder).encode(), b""]:
            return int(name)
    raise AssertionError("no agent runs in a container")


def test_a_program_runs_with_the_files_of_its_image_and_ends_as_it_does_without(
    service: NodeService, make_node: Any, daemon: DockerDaemon
) -> None:
    agent = make_node()
    program = "echo $FROM_IMAGE $RANK; ls /etc/hostname 2>/dev/null; echo to err >&2; echo kept > $0/out.txt; exit 7"
    service.run(assignment(command("sh", "-c", program, "${output_dir}"), ranks={"ranks_per_node": 2}))

    failed = service.wait_for("failed", seconds=LONG_S)
    service.wait_for("drained")
    service.release()
    status = agent.wait()

    assert (failed["failure_class"], failed["reason"], failed["exit_code"]) == ("user", "user_error", 7)
    assert {service.log(rank, "stdout").splitlines()[0] for rank in (0, 1)} == {b"yes 0", b"yes 1"}
    assert b"to err" in service.log(1, "stderr")
    assert [file["file"]["path"] for file in service.data("artifact")] == ["out.txt"]
    assert status == 0
    assert daemon.containers() == []


def test_a_cancel_reaches_the_ranks_which_may_save_before_they_end(
    service: NodeService, make_node: Any, daemon: DockerDaemon
) -> None:
    agent = make_node()
    program = "trap 'echo saved; exit 75' TERM; echo ready; while true; do /bin/sleep 0.05; done"
    service.run(assignment(command("sh", "-c", program)))
    service.wait_for("rank_up", seconds=LONG_S)

    service.stop()
    stopped = service.wait_for("stopped")
    service.wait_for("drained")
    service.release()
    agent.wait()

    assert (stopped["exit_code"], stopped["message"]) == (75, "stopped with a checkpoint saved")
    assert service.log(0, "stdout") == b"ready\nsaved\n"
    assert daemon.containers() == []


def test_the_ranks_go_on_when_the_keeper_is_killed_and_the_next_one_finds_them(
    service: NodeService, make_node: Any, daemon: DockerDaemon
) -> None:
    agent = make_node()
    service.run(assignment(command("sh", "-c", TALK)))
    (rank,) = [service.wait_for("rank_up", seconds=LONG_S)["pid"]]

    agent.kill()
    agent.start()
    wait_until(lambda: "attaching" in agent.log(), timeout_s=20, description="the next keeper is there")
    service.stop()
    service.wait_for("stopped")
    service.wait_for("drained")
    service.release()
    status = agent.wait()

    assert len(service.records("boot")) <= 2
    assert [record["pid"] for record in service.data("rank_up")] == [rank]
    lines = service.log(0, "stdout").decode().splitlines()
    assert lines == [f"line {number}" for number in range(1, len(lines) + 1)]
    assert (status, daemon.containers()) == (0, [])


def test_an_agent_that_is_killed_inside_is_started_again_and_loses_no_byte(
    service: NodeService, make_node: Any, daemon: DockerDaemon
) -> None:
    agent = make_node()
    service.run(assignment(command("sh", "-c", TALK)))
    service.wait_for("rank_up", seconds=LONG_S)

    os.kill(inner_agent(agent), signal.SIGKILL)
    failed = service.wait_for("failed", seconds=LONG_S)
    service.wait_for("drained")
    written = (agent.folder / "logs/1/rank-0.stdout").read_bytes()
    service.run(assignment(command("cat", "/proc/self/cgroup"), generation=2))
    service.wait_for("done", generation=2, seconds=LONG_S)

    assert (failed["failure_class"], failed["reason"]) == ("node", "agent_restarted")
    assert service.log(0, "stdout") == written
    assert len(service.journals) == 1
    assert agent.process.poll() is None


@pytest.mark.parametrize(
    ("image", "words"),
    [("nowhere", "manifest"), ("hidden", "unauthorized"), ("bare", "there is no python3 in it")],
)
def test_an_image_that_cannot_be_had_or_run_is_the_job_s_fault_in_docker_s_words(
    service: NodeService, make_node: Any, registry: Registry, daemon: DockerDaemon, image: str, words: str
) -> None:
    agent = make_node(image)
    service.run(assignment(command("true")))

    failed = service.wait_for("failed", seconds=LONG_S)
    service.wait_for("drained")
    service.release()
    agent.wait()

    assert (failed["failure_class"], failed["reason"]) == ("user", "image_refused")
    assert failed["message"].startswith(f"environment.image {registry.image(image)}: ")
    assert words in failed["message"]
    assert [data["status"] for data in service.data("prepare") if data["part"] == "image"][-1] == "failed"
    assert daemon.containers() == []


def test_when_the_lease_is_over_the_machine_is_ended_from_outside_the_container(
    service: NodeService, make_node: Any, tmp_path: Path
) -> None:
    ended = tmp_path / "ended"
    make_node(ends_machine=True, home_boot_id="another", power_off=f"echo ${{FROM_IMAGE:-outside}} > {ended}")
    service.run(assignment(command("sh", "-c", TALK)))
    service.wait_for("rank_up", seconds=LONG_S)

    service.lease = {"expires_in_s": 1.0}
    heard = service.exchanges + 2
    wait_until(lambda: service.exchanges >= heard, description="it has heard of its lease")
    service.away()
    wait_until(ended.exists, timeout_s=30, description="the machine is ended")

    assert ended.read_text() == "outside\n"
    service.back()
