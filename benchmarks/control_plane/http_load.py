"""Load on an HTTP server over connections that stay open, by a client that costs little: it is not what is measured."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Load:
    """What a server answered in a while."""

    seconds: float
    took_ms: list[float]
    """Of each request, in order of size."""
    answer_bytes: int
    """Of the last body."""

    @property
    def per_second(self) -> float:
        return len(self.took_ms) / self.seconds

    def percentile_ms(self, percent: float) -> float:
        return self.took_ms[min(len(self.took_ms) - 1, int(len(self.took_ms) * percent / 100))]


def request(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    """A request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def drive(url: str, make: Callable[[], bytes], *, expect: int, seconds: float, concurrency: int = 16) -> Load:
    """Send what `make` gives, one request after the other on each connection, for so long.

    Raises:
        RuntimeError: an answer had another status.
    """
    return asyncio.run(_drive(url, make, expect, seconds, concurrency))


async def _drive(url: str, make: Callable[[], bytes], expect: int, seconds: float, concurrency: int) -> Load:
    began = time.perf_counter()
    loads = await asyncio.gather(*(_connection(url, make, expect, began + seconds) for _ in range(concurrency)))
    took_ms = sorted(one for mine, _ in loads for one in mine)
    return Load(time.perf_counter() - began, took_ms, loads[0][1])


async def _connection(url: str, make: Callable[[], bytes], expect: int, until: float) -> tuple[list[float], int]:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    took_ms: list[float] = []
    body = b""
    try:
        while (began := time.perf_counter()) < until:
            writer.write(make())
            status, body = await _answer(reader)
            took_ms.append(1000 * (time.perf_counter() - began))
            if status != expect:
                raise RuntimeError(f"{status} instead of {expect}: {body[:500]!r}")
    finally:
        writer.close()
        await writer.wait_closed()
    return took_ms, len(body)


async def send_all(url: str, requests: Sequence[bytes], statuses: Counter[int], concurrency: int = 16) -> list[str]:
    """Send these once each, over so many connections, and count the statuses; the `Location`s that came back."""
    left = deque(requests)
    found: list[str] = []

    async def connection() -> None:
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        while left:
            writer.write(left.popleft())
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            await reader.readexactly(int(fields["content-length"]))
            statuses[int(head.split(" ", 2)[1])] += 1
            found.extend([fields["location"]] if "location" in fields else [])
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(connection() for _ in range(concurrency)))
    return found


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(head.partition("content-length:")[2].partition("\r\n")[0])
    return int(head.split(" ", 2)[1]), await reader.readexactly(length)


def first_id(url: str, headers: dict[str, str]) -> str:
    """The id of the newest job."""

    async def ask() -> str:
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(request("GET", "/v1/jobs?limit=1", headers))
        _, body = await _answer(reader)
        writer.close()
        await writer.wait_closed()
        return str(json.loads(body)["items"][0]["id"])

    return asyncio.run(ask())
