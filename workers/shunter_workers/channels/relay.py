"""Carries a node's requests to the service through the node's own SSH connection.

The node sees a port on its loopback. What comes there is read as HTTP and passed on only where it is for nodes: their
exchanges, and objects by signed URLs. Other programs of the node that find the port get nothing more than that, and
nothing without the node's token.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import h11

FOR_NODES: Final = (b"/v1/node/", b"/v1/objects/")
ANSWER_WITHIN_S: Final = 120.0
CONNECT_WITHIN_S: Final = 10.0
BLOCK_BYTES: Final = 1 << 16

_log = logging.getLogger(__name__)


class Reading(Protocol):
    """A side to read from: asyncio's reader and asyncssh's."""

    async def read(self, n: int = ...) -> Any: ...


class Writing(Protocol):
    """A side to write to."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


class Relay:
    """Serves connections from nodes. `find_service` gives the service's address as it is now."""

    def __init__(self, find_service: Callable[[], str]) -> None:
        self._find_service = find_service

    async def serve(self, reader: Reading, writer: Writing) -> None:
        """One connection from a node, to its end. Never raises but for cancellation."""
        try:
            await self._serve(_Side(h11.Connection(h11.SERVER), reader, writer))
        except (OSError, EOFError, h11.ProtocolError, TimeoutError) as exc:
            _log.debug("a node's request was not carried to its end: %s", exc)
        finally:
            writer.close()

    async def _serve(self, node: _Side) -> None:
        while True:
            request = await node.next()
            if not isinstance(request, h11.Request):
                return
            if not _is_for_nodes(request.target):
                await _refuse(node, 403, b"this way leads to the node's own part of the API only\n")
                return
            if not await self._exchange(node, request):
                return
            if node.http.our_state is not h11.DONE or node.http.their_state is not h11.DONE:
                return
            node.http.start_next_cycle()

    async def _exchange(self, node: _Side, request: h11.Request) -> bool:
        where = urlsplit(self._find_service())
        secure = where.scheme == "https"
        port = where.port or (443 if secure else 80)
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                reader, writer = await asyncio.open_connection(where.hostname, port, ssl=_trusted() if secure else None)
        except (OSError, TimeoutError):
            await _refuse(node, 503, b"the service does not answer\n")
            return False
        service = _Side(h11.Connection(h11.CLIENT), reader, writer)
        try:
            await service.send(_forwarded(request, where.netloc))
            sending = asyncio.create_task(_pump(node, service))
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    await _pump(service, node)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        finally:
            writer.close()
        return True


@cache
def _trusted() -> ssl.SSLContext:
    """Made once: it reads every certificate that the machine trusts, which takes longer than the exchange."""
    return ssl.create_default_context()


class _Side:
    """One end of a request: its protocol state, and its stream."""

    def __init__(self, http: h11.Connection, reader: Reading, writer: Writing) -> None:
        self.http = http
        self._reader = reader
        self._writer = writer

    async def next(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]  # NEED_DATA is the only other sentinel besides PAUSED
            if self.http.they_are_waiting_for_100_continue:
                await self.send(h11.InformationalResponse(status_code=100, headers=[]))
            self.http.receive_data(await self._reader.read(BLOCK_BYTES) or b"")

    async def send(self, event: h11.Event) -> None:
        data = self.http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()


async def _pump(source: _Side, target: _Side) -> None:
    """Pass on what comes until the message is whole."""
    while True:
        event = await source.next()
        if isinstance(event, h11.InformationalResponse) or event is h11.PAUSED:
            continue
        if isinstance(event, h11.ConnectionClosed):
            raise EOFError("the other side closed in the middle of a message")
        assert isinstance(event, h11.Event)
        await target.send(_without_hops(event) if isinstance(event, h11.Response) else event)
        if isinstance(event, h11.EndOfMessage):
            return


def _is_for_nodes(target: bytes) -> bool:
    path = target.split(b"?", 1)[0]
    return path.startswith(FOR_NODES) and b".." not in path and b"%2e" not in path.lower() and b"//" not in path


def _forwarded(request: h11.Request, host: str) -> h11.Request:
    kept = [(name, value) for name, value in request.headers if name not in (b"host", b"connection", b"expect")]
    headers = [(b"host", host.encode()), (b"connection", b"close"), *kept]
    return h11.Request(method=request.method, target=request.target, headers=headers)


def _without_hops(response: h11.Response) -> h11.Response:
    """The connection to the service ends after each answer; the one to the node goes on."""
    kept = [(name, value) for name, value in response.headers if name not in (b"connection", b"keep-alive")]
    return h11.Response(status_code=response.status_code, reason=response.reason, headers=kept)


async def _refuse(node: _Side, status: int, text: bytes) -> None:
    headers = [("content-type", "text/plain"), ("content-length", str(len(text))), ("connection", "close")]
    await node.send(h11.Response(status_code=status, headers=headers))
    await node.send(h11.Data(data=text))
    await node.send(h11.EndOfMessage())
