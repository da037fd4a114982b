"""HTTP/1.1 over one kept connection, as much of it as agents need.

A client library costs more processor time per exchange than all the rest of a played agent, and thousands share a core.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit


class Reply(NamedTuple):
    """What came back. `status` 0: nothing did."""

    status: int
    body: bytes


class Line:
    """Requests one after the other."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._base = ""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, base: str, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """One request to `base` (`http://HOST:PORT`), and its reply. A kept connection that was closed is made anew."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._call(base, request(base, method, path, headers, body))
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            self.close()
            return Reply(0, b"")

    async def say(self, base: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Send a POST and hang up before the reply: it is lost."""
        try:
            async with asyncio.timeout(self._timeout_s):
                _, writer = await self._open(base)
                writer.write(request(base, "POST", path, headers, body))
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _call(self, base: str, sent: bytes) -> Reply:
        kept = self._streams is not None and self._base == base
        try:
            return await self._exchange(base, sent)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            if not kept:
                raise
        return await self._exchange(base, sent)  # what agents send may be repeated

    async def _exchange(self, base: str, sent: bytes) -> Reply:
        reader, writer = await self._open(base)
        writer.write(sent)
        head = await reader.readuntil(b"\r\n\r\n")
        status, fields = parse_head(head[:-4])
        body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
        if fields.get(b"connection", b"").lower() == b"close":
            self.close()
        return Reply(status, body)

    async def _open(self, base: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._base != base:
            self.close()
        if self._streams is None:
            where = urlsplit(base)
            self._streams = await asyncio.open_connection(where.hostname, where.port or 80)
            self._base = base
        return self._streams


def request(base: str, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """What goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {base.partition('://')[2]}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def parse_head(head: bytes) -> tuple[int, dict[bytes, bytes]]:
    """Status and fields, their names in small letters, of a head without the empty line behind it."""
    first, *lines = head.split(b"\r\n")
    fields = (line.partition(b":") for line in lines)
    return int(first.split(b" ", 2)[1]), {name.strip().lower(): value.strip() for name, _, value in fields}
