"""Server-sent events: the wire format, and an answer that streams them."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from litestar.response import Stream

from shunter_service.auth import Connection, key_of

EVENT_STREAM = "text/event-stream"
KEEP_ALIVE = b": still here\n\n"
OPENING = b"retry: 1000\n\n"
_KEY_EVERY_S: Final = 5.0
"""How often the key of an open stream is looked at; a look costs nothing as long as the key is remembered."""


def message(data: bytes, *, id_: str, event: str | None = None) -> bytes:
    """One event. `data` is JSON, which holds no line ends of its own. A browser calls one without a name `message`."""
    name = b"" if event is None else b"event: " + event.encode() + b"\n"
    return b"id: " + id_.encode() + b"\n" + name + b"data: " + data + b"\n\n"


def place(id_: str) -> bytes:
    """No event: only where a client that connects anew goes on."""
    return b"id: " + id_.encode() + b"\n\n"


def wants_stream(connection: Connection) -> bool:
    """Whether the client asks for a stream rather than a page."""
    return EVENT_STREAM in connection.headers.get("accept", "")


def event_stream(connection: Connection, messages: AsyncGenerator[bytes]) -> Stream:
    """An answer that no cache keeps and no proxy holds back. It ends soon after its key was revoked."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Stream(_while_allowed(connection, messages), media_type=EVENT_STREAM, headers=headers)


async def _while_allowed(connection: Connection, messages: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    look_at = time.monotonic() + _KEY_EVERY_S
    async with aclosing(messages):
        async for piece in messages:
            if time.monotonic() >= look_at:
                if await key_of(connection) is None:
                    return
                look_at = time.monotonic() + _KEY_EVERY_S
            yield piece
