"""Lets agents that exchange or listen past the framework: nearly every request is one of these. What a framework does
for an exchange costs more than the exchange, and what it keeps of a request weighs where thousands listen.

Only what goes well is answered here. Anything else (no token, a body too long, a message that is none, an error) the
application itself gets to see, from the beginning, and answers as it answers everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

from litestar.types import ASGIApp, HTTPRequestEvent, Receive, Scope, Send
from pydantic import ValidationError
from shunter_schemas.node_sync import ListenRequest
from shunter_store.node.beats import Exchange
from shunter_store.node.sync_reading import read_request

from shunter_service.context import Service

LONGEST_LISTEN_BYTES: Final = 1000

_BEARER = b"bearer "
_OK_HEAD = (b"content-type", b"application/json")


class NodeDoor:
    """The application, with a door of its own for `POST /v1/node/sync` and `POST /v1/node/listen`."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._ways: Mapping[str, tuple[int, Callable[[str, bytes], Awaitable[bytes | None]]]] = {
            "/v1/node/sync": (service.settings.max_sync_bytes, self._exchange),
            "/v1/node/listen": (LONGEST_LISTEN_BYTES, self._listen),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = cast("dict[str, Any]", scope)
        way = self._ways.get(asked["path"]) if asked["type"] == "http" and asked["method"] == "POST" else None
        if way is None:
            await self._app(scope, receive, send)
            return
        longest, answer_to = way
        token, length = _read_head(asked)
        if not token or not 0 < length <= longest:
            await self._app(scope, receive, send)
            return
        body = await _read_body(receive)
        answer = None if body is None else await answer_to(token, body)
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

    async def _exchange(self, token: str, body: bytes) -> bytes | None:
        """None: it did not go well. Nothing was done then, or what was done may be done again."""
        try:
            answer = await self._service.exchanges.take(Exchange(token, read_request(body)))
        except Exception:  # whatever it is, the application meets it again and says so
            return None
        return answer.model_dump_json().encode()

    async def _listen(self, token: str, body: bytes) -> bytes | None:
        """None: it did not go well, and nothing was done."""
        try:
            asked = ListenRequest.model_validate_json(body)
        except ValidationError:
            return None
        if not self._service.listeners.may_listen(asked.node, token):
            return None
        return (await self._service.listeners.listen(asked)).model_dump_json().encode()


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
