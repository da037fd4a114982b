"""`python -m shunter_service api`: one API process under uvicorn."""

from __future__ import annotations

import argparse
import resource
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

import uvicorn
from shunter_store.errors import UnusableDatabase
from shunter_store.installation.exit_codes import UNUSABLE, WRONG_SETTINGS

from shunter_service import log_setup
from shunter_service.app import create_app
from shunter_service.context import Service, open_service
from shunter_service.node.node_door import NodeDoor
from shunter_service.settings import BadSettings, load_settings, unknown_settings
from shunter_service.web.head_requests import HeadRequests
from shunter_service.web.http_heads import BoundedHeads

_SHUTDOWN_WITHIN_S = 2
_MOST_FILES = 1 << 20


def run(arguments: Sequence[str]) -> int:
    """Serve until told to stop; the exit code."""
    options = _parse(arguments)
    log_setup.set_up()
    _raise_file_limit()
    try:
        service = open_service(*load_settings())
        for text in unknown_settings():
            print(f"warning: {text}", file=sys.stderr)
    except BadSettings as error:
        print(error, file=sys.stderr)
        return WRONG_SETTINGS
    except (UnusableDatabase, OSError) as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    server = make_server(service, host=options.host, port=options.port)
    server.run(sockets=[server.config.bind_socket() if options.fd is None else socket.socket(fileno=options.fd)])
    return 0 if server.started else 1


def make_server(service: Service, *, host: str = "127.0.0.1", port: int = 0) -> uvicorn.Server:
    """A server over an opened service, which it closes when it ends."""
    config = uvicorn.Config(
        NodeDoor(HeadRequests(create_app(service)), service),
        host=host,
        port=port,
        http=BoundedHeads,
        loop="uvloop",
        ws="none",
        lifespan="on",
        access_log=False,
        server_header=False,
        log_config=None,
        backlog=2048,
        timeout_graceful_shutdown=_SHUTDOWN_WITHIN_S,
    )
    return _Server(config, service)


class _Server(uvicorn.Server):
    """Ends its streams, and answers agents that listen, when it is told to stop: they would hold the shutdown up to its
    time limit.

    Lets the system cut a connection whose client takes nothing for long, or has vanished without a word: what is
    written for it would otherwise wait for as long as the process lives.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in sockets or ():
            _cut_stalled(listener, self._service.settings.stalled_s)
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.tailer.close()
        await self._service.listeners.close()
        await super().shutdown(sockets)


def _raise_file_limit() -> None:
    """As many connections as the system lets this process have: each node keeps one or two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # where it may not be raised, fewer nodes are held
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _cut_stalled(listener: socket.socket, after_s: float) -> None:
    """Set what connections inherit from the socket on which they arrive."""
    if listener.family not in (socket.AF_INET, socket.AF_INET6):
        return
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # where it is missing, the system's own patience holds
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * after_s))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(after_s / 2)))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(after_s / 8)))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="shunter service", description="Serve the REST API.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--fd", type=int, help="serve on this listening socket instead (what `shunter up` does)")
    return parser.parse_args(arguments)
