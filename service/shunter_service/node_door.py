"""Lets agents' exchanges past the framework: nearly every request is one, and what a framework does for it costs more
than the exchange.

Only what goes well is answered here. Anything else (no token, a body too long, a message that is none, an error) the
application itself gets to see, from the beginning, and answers as it answers everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from litestar.types import ASGIApp, HTTPRequestEvent, Receive, Scope, Send
from shunter_store.beats import Exchange
from shunter_store.sync_reading import read_request

from shunter_service.context import Service

_PATH = "/v1/node/sync"
_BEARER = b"bearer "
_OK_HEAD = (b"content-type", b"application/json")


class NodeDoor:
    """The application, with a door of its own for `POST /v1/node/sync`."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = cast("dict[str, Any]", scope)
        if asked["type"] != "http" or asked["path"] != _PATH or asked["method"] != "POST":
            await self._app(scope, receive, send)
            return
        token, length = _read_head(asked)
        if not token or not 0 < length <= self._service.settings.max_sync_bytes:
            await self._app(scope, receive, send)
            return
        body = await _read_body(receive)
        answer = None if body is None else await self._answer(token, body)
        if answer is None:
            await self._app(scope, _again(body or b"", receive), send)
            return
        head: Any = {
            "type": "http.response.start",
            "status": 200,
            "headers": [_OK_HEAD, (b"content-length", str(len(answer)).encode())],
        }
        await send(head)
        await send({"type": "http.response.body", "body": answer, "more_body": False})

    async def _answer(self, token: str, body: bytes) -> bytes | None:
        """None: it did not go well. Nothing was done then, or what was done may be done again."""
        try:
            answer = await self._service.exchanges.take(Exchange(token, read_request(body)))
        except Exception:  # whatever it is, the application meets it again and says so
            return None
        return answer.model_dump_json().encode()


def _read_head(scope: Mapping[str, Any]) -> tuple[str, int]:
    """The bearer token and the announced length; empty and 0 where there is none of it."""
    token, length = "", 0
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == _BEARER:
            token = value[7:].strip().decode("latin-1")
        elif name == b"content-length" and value.isdigit():
            length = int(value)
    return token, length


async def _read_body(receive: Receive) -> bytes | None:
    """None: the client went away in the middle."""
    pieces: list[bytes] = []
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        pieces.append(event.get("body", b""))
        if not event.get("more_body", False):
            return b"".join(pieces)


def _again(body: bytes, receive: Receive) -> Receive:
    """`receive` as it was before the body was read."""
    left: list[HTTPRequestEvent] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Any:
        return left.pop() if left else await receive()

    return read
