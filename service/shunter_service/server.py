"""`python -m shunter_service api`: one API process under uvicorn."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence

import uvicorn
from shunter_store.errors import UnusableDatabase

from shunter_service import log_setup
from shunter_service.app import create_app
from shunter_service.context import Service, open_service
from shunter_service.settings import BadSettings, load_settings, unknown_settings

_SHUTDOWN_WITHIN_S = 2


def run(arguments: Sequence[str]) -> int:
    """Serve until told to stop; the exit code."""
    options = _parse(arguments)
    log_setup.set_up()
    try:
        service = open_service(*load_settings())
        for text in unknown_settings():
            print(f"warning: {text}", file=sys.stderr)
    except (BadSettings, UnusableDatabase, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    server = make_server(service, host=options.host, port=options.port)
    server.run(sockets=None if options.fd is None else [socket.socket(fileno=options.fd)])
    return 0 if server.started else 1


def make_server(service: Service, *, host: str = "127.0.0.1", port: int = 0) -> uvicorn.Server:
    """A server over an opened service, which it closes when it ends."""
    config = uvicorn.Config(
        create_app(service),
        host=host,
        port=port,
        http="httptools",
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
    """Ends its streams when it is told to stop: they would hold the shutdown up to its time limit."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.tailer.close()
        await super().shutdown(sockets)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m shunter_service api", description="Serve the REST API.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--fd", type=int, help="serve on this listening socket instead (what `shunter up` does)")
    return parser.parse_args(arguments)
