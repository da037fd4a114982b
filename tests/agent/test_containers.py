"""Docker's command lines and words, without docker."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shunter_agent.containing import container, docker
from shunter_agent.containing.container import Container, handed_on
from shunter_agent.containing.docker import Answer
from shunter_agent.containing.keeper import Keeper
from shunter_agent.keeping.layout import Layout
from shunter_workers.packing import agent_archive
from support.agents import AgentMaker, AgentProcess, assignment, command
from support.node_service import NodeService
from support.waiting import wait_until


def made(tmp_path: Path, *, gpus: bool = False) -> Container:
    return Container(("sudo", "-n", "docker"), "sha256:abc", Layout(str(tmp_path)), "shn-dep-1", "job_1", gpus)


def has(argv: list[str], *words: str) -> bool:
    """Whether the words stand there one after the other."""
    return any(argv[start : start + len(words)] == list(words) for start in range(len(argv)))


def test_the_container_shares_the_machine_s_network_memory_and_pids_and_has_the_node_s_folder(tmp_path: Path) -> None:
    argv = made(tmp_path).run_argv()

    assert argv[:5] == ["sudo", "-n", "docker", "run", "--rm"]
    for space in ("network", "ipc", "pid", "uts", "userns"):
        assert has(argv, f"--{space}", "host")
    assert has(argv, "--volume", f"{tmp_path}:{tmp_path}")
    assert has(argv, "--name", "shunter-shn-dep-1")
    assert has(argv, "--label", "shunter.node=shn-dep-1")
    assert has(argv, "--label", "shunter.job=job_1")
    assert argv[-6:] == ["python3", "sha256:abc", f"{tmp_path}/agent.pyz", "contained", "--dir", str(tmp_path)]


def test_gpus_are_handed_in_where_the_job_uses_them_and_tried_with_the_image(tmp_path: Path) -> None:
    with_gpus, without = made(tmp_path, gpus=True), made(tmp_path)

    assert has(with_gpus.run_argv(), "--gpus", "all")
    assert has(with_gpus.check_argv(), "--gpus", "all")
    assert "--gpus" not in without.run_argv()


def test_what_the_agent_writes_inside_belongs_to_its_user_outside() -> None:
    root = container._user(0, 0, [0], "/node")
    other = container._user(1000, 1000, [1000, 44], "/node")

    assert root == ["--user", "0:0"]
    assert other[:4] == ["--user", "1000:1000", "--group-add", "44"]
    assert has(other, "--ulimit", "memlock=-1")
    assert has(other, "--env", "HOME=/node")


def test_variables_of_ours_go_in_by_a_file_and_nothing_else_does(tmp_path: Path) -> None:
    environment = {
        "SHUNTER_NODE_HANDLE": "i-1",
        "SSH_SHUNTER_NODE": "shn-dep-1",
        "https_proxy": "http://proxy:3128",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "PATH": "/bin",
        "SHUNTER_ODD": "two\nlines",
    }

    text = handed_on(environment)
    argv = made(tmp_path).run_argv()

    assert text == "SHUNTER_NODE_HANDLE=i-1\nSSH_SHUNTER_NODE=shn-dep-1\nhttps_proxy=http://proxy:3128\n"
    assert has(argv, "--env-file", f"{tmp_path}/container.env")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "Error response from daemon: manifest for x/y:1 not found: manifest unknown: manifest unknown",
            docker.REFUSED,
        ),
        (
            "Error response from daemon: pull access denied for x, repository does not exist or may require "
            "'docker login': denied: requested access to the resource is denied",
            docker.REFUSED,
        ),
        ('Error response from daemon: Head "https://ghcr.io/v2/x/manifests/1": denied', docker.REFUSED),
        ("Error response from daemon: unauthorized: authentication required", docker.REFUSED),
        ('Error response from daemon: Get "https://x/v2/": no basic auth credentials', docker.REFUSED),
        ("no matching manifest for linux/amd64 in the manifest list entries", docker.REFUSED),
        ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", docker.FULL),
        ("toomanyrequests: You have reached your pull rate limit. access denied until later", None),
        ('Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host', None),
        ("net/http: TLS handshake timeout", None),
        ("received unexpected HTTP status: 503 Service Unavailable", None),
        ("open /etc/docker/certs.d: permission denied", None),
    ],
)
def test_docker_s_words_say_whether_a_pull_is_worth_another_try(words: str, reason: str | None) -> None:
    fault = docker.pull_fault(words)

    assert (fault.reason if fault else None) == reason
    assert fault is None or words in str(fault)


@pytest.mark.parametrize(
    ("status", "words", "reason", "told"),
    [
        (125, 'could not select device driver "" with capabilities: [[gpu]].', docker.NO_DOCKER, "container toolkit"),
        (127, 'exec: "python3": executable file not found in $PATH', docker.REFUSED, "no python3 in it"),
        (1, "exec /usr/bin/python3: exec format error", docker.REFUSED, "another kind of processor"),
        (1, "", docker.REFUSED, "older than 3.8"),
        (125, "Cannot connect to the Docker daemon. Is the docker daemon running?", None, ""),
        (0, "", None, ""),
    ],
)
def test_an_image_that_does_not_start_says_what_it_lacks(
    status: int, words: str, reason: str | None, told: str
) -> None:
    fault = docker.start_fault(Answer(status, words))

    assert (fault.reason if fault else None) == reason
    assert told in str(fault or "")


def test_a_pull_tells_how_many_layers_are_there() -> None:
    output = (
        "1: Pulling from x\n0123456789ab: Pulling fs layer\nba9876543210: Pull complete\nfedcba987654: Already exists\n"
    )

    assert docker.layers(output) == "2 of 3 layers"
    assert docker.layers("1: Pulling from x\n") == ""


def test_devices_are_handed_in_where_there_are_any(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "some").mkdir()
    (tmp_path / "some/null").symlink_to("/dev/null")

    found = container._devices(["/dev/zero", str(tmp_path / "empty"), str(tmp_path / "some"), "/nowhere"])

    assert found == ["--device", "/dev/zero", "--device", str(tmp_path / "some")]


def programs(folder: Path, **texts: str) -> str:
    """A PATH that holds these shell scripts alone."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return str(folder)


_DENIED = "echo permission denied while trying to connect to the Docker daemon socket; exit 1"


@pytest.mark.parametrize(
    ("docker_says", "sudo_says", "found"),
    [
        ("echo 26.0", "exit 1", ("docker",)),
        (_DENIED, "echo 26.0", ("sudo", "-n", "docker")),
        (_DENIED, "echo a password is required; exit 1", docker.NO_DOCKER),
        (None, "exit 1", docker.NO_DOCKER),
    ],
)
def test_docker_is_called_as_it_may_be_called(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    docker_says: str | None,
    sudo_says: str,
    found: tuple[str, ...] | str,
) -> None:
    there = {"docker": docker_says} if docker_says else {}
    monkeypatch.setitem(os.environ, "PATH", programs(tmp_path / "bin", sudo=sudo_says, **there))

    try:
        answer: tuple[str, ...] | str = docker.find(may_install=False)
    except docker.ImageFault as fault:
        answer = fault.reason

    assert answer == found


def test_docker_is_installed_only_where_the_machine_was_made_for_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    install = f'printf "#!/bin/sh\\necho 26.0\\n" > {folder}/docker; /bin/chmod 755 {folder}/docker'
    env = '[ "$1" = DEBIAN_FRONTEND=noninteractive ] && shift; exec "$@"'
    path = programs(
        folder, **{"apt-get": f'[ "$1" = install ] && {{ {install}; }}; true', "env": env, "sudo": 'shift; exec "$@"'}
    )
    monkeypatch.setitem(os.environ, "PATH", path)

    with pytest.raises(docker.ImageFault, match="there is no docker"):
        docker.find(may_install=False)

    assert docker.find(may_install=True) == ("docker",)


PLAYED = """\
#!/bin/sh
echo "$@" >> {folder}/calls
case $1 in
version) echo 26.0 ;;
pull) . {folder}/pull ;;
image) . {folder}/pull && echo sha256:abc ;;
inspect) echo Error: No such object; exit 1 ;;
run)
    while [ "$1" != sha256:abc ]; do shift; done
    shift
    case $2 in
    contained) . {folder}/contain ;;
    esac
    exec {python} "$@" ;;
esac
"""
"""A docker that runs what is to be in the container beside it."""


@pytest.fixture
def make_node(tmp_path: Path, make_agent: AgentMaker) -> Callable[..., AgentProcess]:
    """A node with the played docker; `pull` and `contain` are what its script does at these."""

    def make(pull: str = "true", contain: str = "true") -> AgentProcess:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "pull").write_text(pull)
        (folder / "contain").write_text(contain)
        (folder / "docker").write_text(PLAYED.format(folder=folder, python=sys.executable))
        (folder / "docker").chmod(0o755)
        wanted: dict[str, Any] = {"image": "acme/train:1", "gpus": False, "may_install": False}
        agent = make_agent(environment={"PATH": f"{folder}:{os.environ['PATH']}"}, container=wanted)
        (agent.folder / "agent.pyz").write_bytes(agent_archive())
        return agent.start()

    return make


def calls(agent: AgentProcess) -> list[str]:
    made = agent.folder.parent / "bin/calls"
    return made.read_text().splitlines() if made.exists() else []


def test_the_agent_in_the_container_takes_over_what_the_one_before_it_was_told(
    service: NodeService, make_node: Callable[..., AgentProcess]
) -> None:
    service.run(assignment(command("sh", "-c", "echo hello")))
    agent = make_node(pull="sleep 1")

    service.wait_for("drained")
    service.release()
    status = agent.wait()

    assert service.log(0, "stdout") == b"hello\n"
    assert (status, len(service.journals)) == (0, 1)
    assert ("image", "started") in [(data["part"], data["status"]) for data in service.data("prepare")]
    assert service.statuses[0].phase in ("idle", "preparing")
    assert calls(agent)[1] == "pull acme/train:1"


def test_an_image_that_is_pushed_meanwhile_is_found_by_the_next_generation(
    service: NodeService, make_node: Callable[..., AgentProcess]
) -> None:
    agent = make_node(pull="[ -e $0.pushed ] || { echo manifest unknown; exit 1; }")
    service.run(assignment(command("true")))
    failed = service.wait_for("failed")

    (agent.folder.parent / "bin/docker.pushed").touch()
    service.run(assignment(command("true"), generation=2))
    service.wait_for("done", generation=2)

    assert failed["reason"] == "image_refused"


def test_a_container_that_ends_at_once_again_and_again_is_told_with_what_it_said(
    service: NodeService, make_node: Callable[..., AgentProcess]
) -> None:
    service.run(assignment(command("true")))
    make_node(contain="echo cannot mount >&2; exit 1")

    failed = service.wait_for("failed", seconds=40)

    assert (failed["failure_class"], failed["reason"]) == ("node", "container_not_started")
    assert "3 containers in a row ended at once" in failed["message"]
    assert "cannot mount" in failed["message"]


@pytest.mark.parametrize(("last", "runs"), [((0, "true"), True), ((1, "Error: No such object: shunter-n"), False)])
def test_a_docker_that_says_nothing_for_a_moment_is_asked_again(
    make_agent: AgentMaker, monkeypatch: pytest.MonkeyPatch, last: tuple[int, str], runs: bool
) -> None:
    """Its container may run all the same, and a new one would end the ranks in it."""
    agent = make_agent(container={"image": "acme/train:1", "gpus": False, "may_install": False})
    (agent.folder / "image.json").write_text('{"docker": ["docker"], "id": "sha256:abc"}')
    answers = iter([Answer(1, "Cannot connect to the Docker daemon"), Answer(*last)])
    monkeypatch.setattr(docker, "call", lambda argv: next(answers))

    assert (Keeper(str(agent.folder))._running() is not None) is runs


def test_a_stop_that_comes_while_the_image_is_pulled_is_told_at_once(
    service: NodeService, make_node: Callable[..., AgentProcess]
) -> None:
    agent = make_node(pull="sleep 60")
    service.run(assignment(command("true")))
    service.wait_for("prepare")

    service.stop()
    stopped = service.wait_for("stopped")
    service.wait_for("drained")
    service.release()

    assert stopped["reason"] == "not_started"
    assert agent.wait() == 0


def test_a_machine_that_goes_away_ends_keeper_and_pull(
    service: NodeService, make_node: Callable[..., AgentProcess]
) -> None:
    agent = make_node(pull="sleep 60")
    wait_until(lambda: "pull acme/train:1" in calls(agent), description="it pulls")

    agent.process.send_signal(signal.SIGTERM)

    assert agent.wait(20) == 0
