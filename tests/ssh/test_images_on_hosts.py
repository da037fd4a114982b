"""Jobs with an image of their own on a host of one's own: from the document to the container and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import docker_daemon, loopback_sshd
from support.control_plane import ControlPlane, control_plane, plain
from support.docker_daemon import DockerDaemon
from support.registries import PYTHON, Registry
from support.ssh_pool import as_variable
from support.waiting import wait_until

_LACKING = docker_daemon.lacking() or ("" if loopback_sshd.program() and PYTHON.exists() else "no sshd, or no Python")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(_LACKING), reason=_LACKING or "all is here"),
]

PATIENCE_S = 120.0


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


@pytest.fixture(scope="module")
def plane(daemon: DockerDaemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder: Path = tmp_path_factory.mktemp("host")
    data = tmp_path_factory.mktemp("plane") / "data"
    with (
        loopback_sshd.loopback_host(folder, daemon.environment, python=str(PYTHON)) as settings,
        control_plane(data, **as_variable(settings)) as made,
    ):
        yield made


def in_image(image: str, program: str, **parts: Any) -> dict[str, Any]:
    return plain("sh", "-c", program, environment={"image": image}, **parts)


def test_a_job_runs_in_its_image_and_leaves_no_container(
    plane: ControlPlane, registry: Registry, daemon: DockerDaemon
) -> None:
    job_id = plane.submit(in_image(registry.image("tiny"), "echo image: $FROM_IMAGE"))

    job = plane.wait_for(job_id, "succeeded", timeout_s=PATIENCE_S)

    assert job["reason"] == "done"
    assert plane.lines(job_id) == ["image: yes"]
    wait_until(lambda: daemon.containers() == [], timeout_s=20, description="the container is gone")


def test_a_cancel_ends_what_runs_in_the_container(
    plane: ControlPlane, registry: Registry, daemon: DockerDaemon
) -> None:
    program = "trap 'echo told; exit 75' TERM; echo up; while true; do /bin/sleep 0.1; done"
    job_id = plane.submit(in_image(registry.image("tiny"), program))
    plane.wait_for(job_id, "running", timeout_s=PATIENCE_S)

    plane.cancel(job_id)
    plane.wait_for(job_id, "cancelled", timeout_s=PATIENCE_S)

    lines = plane.lines(job_id)
    assert {"up", "told"} <= set(lines), lines
    wait_until(lambda: daemon.containers() == [], timeout_s=20, description="the container is gone")


def test_an_image_that_does_not_exist_ends_the_job_as_invalid_in_the_registry_s_words(
    plane: ControlPlane, registry: Registry
) -> None:
    image = registry.image("nowhere")
    job_id = plane.submit(in_image(image, "true"))

    job = plane.wait_for(job_id, "failed", timeout_s=PATIENCE_S)

    assert job["reason"] == "invalid"
    assert f"environment.image {image}" in job["message"]
    assert "manifest" in job["message"]
