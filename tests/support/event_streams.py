"""Server-sent events as tests read them: beside the event loop that serves them, from real connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from support.service_app import App
from support.waiting import wait_until

STREAM = {"Accept": "text/event-stream"}


@dataclass(frozen=True)
class Told:
    """A message of a stream. An id without data has the event `place`, a comment `comment`."""

    id: str
    event: str
    data: Any = None


@dataclass
class Follower:
    """What a stream told so far."""

    found: list[Told] = field(default_factory=list)
    ended: bool = False

    @property
    def messages(self) -> list[Told]:
        """Without comments and places."""
        return [one for one in self.found if one.event not in ("comment", "place")]

    @property
    def place(self) -> str:
        """The last id."""
        return next(one.id for one in reversed(self.found) if one.id)

    def of(self, topic: str, member: str) -> list[Any]:
        """What a topic told, of one member."""
        return [one.data[member] for one in self.messages if one.data["topic"] == topic and member in one.data]

    async def until(self, predicate: Callable[[], object], description: str) -> None:
        """Wait until the stream has told something."""
        await eventually(predicate, description)


async def eventually(predicate: Callable[[], object], description: str) -> None:
    """`wait_until` beside an event loop that has to go on."""
    await asyncio.to_thread(wait_until, predicate, description=description)


async def told(response: httpx.Response) -> AsyncIterator[Told]:
    """The messages of an open answer."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line.startswith(":"):
            yield Told("", "comment")
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            if "data" in fields:
                yield Told(fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"]))
            elif "id" in fields:
                yield Told(fields["id"], "place")
            fields = {}


async def read_whole(app: App, path: str, **headers: str) -> Follower:
    """A stream that ends."""
    follower = Follower()
    async with app.http.stream("GET", path, headers={**STREAM, **headers}) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        async for one in told(response):
            follower.found.append(one)
    follower.ended = True
    return follower


@asynccontextmanager
async def following(app: App, path: str, **headers: str) -> AsyncIterator[Follower]:
    """A stream that is read while the block runs."""
    follower = Follower()
    opened = asyncio.Event()

    async def read() -> None:
        async with app.http.stream("GET", path, headers={**STREAM, **headers}) as response:
            assert response.status_code == 200, await response.aread()
            async for one in told(response):
                follower.found.append(one)
                opened.set()
        follower.ended = True

    task = asyncio.create_task(read())
    waiting = asyncio.create_task(opened.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        if task.done():
            task.result()
        yield follower
    finally:
        waiting.cancel()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
