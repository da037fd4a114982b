"""Server-sent events: the wire format, and an answer that streams them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from litestar.response import Stream

from shunter_service.auth import Connection

EVENT_STREAM = "text/event-stream"
KEEP_ALIVE = b": still here\n\n"
OPENING = b"retry: 1000\n\n"


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


def event_stream(messages: AsyncIterator[bytes]) -> Stream:
    """An answer that no cache keeps and no proxy holds back."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Stream(messages, media_type=EVENT_STREAM, headers=headers)
