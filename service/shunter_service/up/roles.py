"""The roles of one machine: embedded Redis, API, worker; how each is started and asked how it does."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from shunter_service.up import broker
from shunter_service.up.child import Child
from shunter_service.up.layout import Layout
from shunter_service.up.progress import Progress
from shunter_service.up.role import RoleSpec

_CLIENT_VARIABLES = ("SHUNTER_API_KEY", "SHUNTER_URL")
"""What a user sets for the CLI is nothing for servers."""


def python(*arguments: str) -> tuple[str, ...]:
    """This Python with a module; `-P`: files of the current folder shadow no module."""
    return (sys.executable, "-P", "-m", *arguments)


def child_environment(layout: Layout, redis_url: str) -> dict[str, str]:
    """The environment of every role."""
    kept = {name: value for name, value in os.environ.items() if name not in _CLIENT_VARIABLES}
    return kept | {"SHUNTER_DATA_DIR": str(layout.data_dir), "SHUNTER_REDIS_URL": redis_url}


def redis_role(layout: Layout, socket_path: Path) -> RoleSpec:
    """The embedded server.

    Raises:
        NoServer: there is no program for it, or a foreign server answers on the socket.
    """
    program = broker.find_server()
    broker.wait_until_free(socket_path)
    socket_path.unlink(missing_ok=True)

    def answers(_: Child) -> bool:
        return broker.ping(socket_path)

    return RoleSpec(
        name="redis",
        argv=broker.server_argv(program, socket_path, layout.redis),
        env={name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")},
        log=layout.logs / "redis.log",
        is_ready=answers,
        is_alive=answers,
        stops_last=True,
        on_crash_loop=lambda: broker.set_aside(layout.redis),
    )


def api_roles(layout: Layout, env: Mapping[str, str], listener: socket.socket, processes: int = 1) -> list[RoleSpec]:
    """The HTTP service on the supervisor's socket: so many processes, each of which takes the connections that come
    while it has time."""
    address = listener.getsockname()

    def is_ready(_: Child) -> bool:
        return _answers(listener.family, address, "/readyz", timeout_s=0.3)

    def is_alive(_: Child) -> bool:
        return _answers(listener.family, address, "/healthz", timeout_s=1.0)

    one = RoleSpec(
        name="api",
        argv=python("shunter_service", "api", "--fd", str(listener.fileno())),
        env=env,
        log=layout.logs / "api.log",
        is_ready=is_ready,
        is_alive=is_alive,
        pass_fds=(listener.fileno(),),
    )
    if processes == 1:
        return [one]
    return [_of_several(one, layout, number) for number in range(1, processes + 1)]


def _of_several(spec: RoleSpec, layout: Layout, number: int) -> RoleSpec:
    """Any of them may have answered on the socket: whether this one lives its own file tells."""
    progress, answers = Progress(layout.run), spec.is_ready
    return replace(
        spec,
        name=f"api-{number}",
        log=layout.logs / (spec.log.name if number == 1 else f"api-{number}.log"),
        is_ready=lambda child: progress.is_up(child.pid, child.started_at) and answers(child),
        is_alive=lambda child: not progress.stuck(child.pid),
        hangs_after_s=0.0,  # the probe itself has waited long enough
    )


def worker_role(layout: Layout, env: Mapping[str, str]) -> RoleSpec:
    """The Celery worker and its children."""
    progress = Progress(layout.run)
    return RoleSpec(
        name="worker",
        argv=python("shunter_workers"),
        env=env,
        log=layout.logs / "worker.log",
        is_ready=lambda child: progress.is_up(child.pid, child.started_at),
        is_alive=lambda child: not progress.stuck(child.pid),
        hangs_after_s=0.0,  # the probe itself has waited long enough
    )


def _answers(family: int, address: tuple[str, int], path: str, timeout_s: float) -> bool:
    """Whether GET `path` answers 200. A hand-written request: an HTTP library would double the supervisor's memory."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address[0], address[0])  # noqa: S104 - read, not bound
    with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect((host, address[1]))
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return connection.recv(64).startswith(b"HTTP/1.1 200 ")
    return False
