"""The listening socket: bound once by the supervisor and handed to every API process it starts.

Because the supervisor keeps it open, a restart of the API makes clients wait in the backlog instead of being refused.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

_BACKLOG = 2048


class PortTaken(Exception):
    """The port that the user asked for cannot be had."""


def listen(host: str, port: int | None, last_url: str | None) -> socket.socket:
    """A listening TCP socket on `host`: on `port` if given, else on the port of `last_url` if free, else on a free one.

    Raises:
        PortTaken: `port` was given and is in use, or the host is not an address of this machine.
    """
    if port is None and last_url is not None and (last := _port_of(last_url)):
        with suppress(OSError):
            return _bind(host, last)
    try:
        return _bind(host, port or 0)
    except OSError as error:
        where, way_out = (f"{host}:{port}", "--port or --host") if port else (host, "--host")
        raise PortTaken(f"cannot listen on {where}: {error.strerror or error}; give another {way_out}") from error


def url_of(listener: socket.socket) -> str:
    """The URL by which this machine reaches the socket (a wildcard address becomes loopback)."""
    host, port = str(listener.getsockname()[0]), listener.getsockname()[1]
    reach = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    return f"http://[{reach}]:{port}" if ":" in reach else f"http://{reach}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine can reach the socket."""
    host = listener.getsockname()[0]
    return bool(host == "::1" or host.startswith("127."))


def read_url(path: Path) -> str | None:
    """The URL of the last run, if there was one."""
    try:
        return path.read_text().strip() or None
    except (OSError, ValueError):
        return None


def write_url(path: Path, url: str) -> None:
    """Write `api-url` in one step: agents read it at each try."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(f"{url}\n")
    draft.replace(path)


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _port_of(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        return None
