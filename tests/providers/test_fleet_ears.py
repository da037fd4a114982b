"""The ears of played agents: they tell of a change once, go on listening, and are quiet where nobody answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from shunter_providers.simulated.entries import NEVER
from shunter_providers.simulated.fleet.ears import Ears
from shunter_providers.simulated.fleet.exchange import headers_of
from shunter_providers.simulated.fleet.played import Birth, Played
from shunter_providers.simulated.settings import FleetSettings


@asynccontextmanager
async def service(*replies: bytes) -> AsyncIterator[tuple[str, list[float]]]:
    """Its address, and the `since` of each request; gives one reply to each, the last one to all that follow."""
    asked: list[float] = []
    served: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                asked.append(json.loads(await reader.readexactly(length))["since"])
                writer.write(replies[min(len(asked), len(replies)) - 1])
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", asked
    finally:
        listening.close()
        await asyncio.gather(*(task for task in served if task is not None))  # the ears have hung up


def reply(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


CHANGED = reply("200 OK", b'{"changed":true,"again_in_s":0.0}')
NOTHING = reply("200 OK", b'{"changed":false,"again_in_s":0.0}')


def listener(base: str) -> tuple[Ears, Played, asyncio.Queue[str]]:
    """An agent that has something to listen for, its ear, and where it is told that something has changed."""
    told: asyncio.Queue[str] = asyncio.Queue()
    agent = Played(Birth("sim-1", "shn-abcdef-1", "secret", base, None, None, NEVER), FleetSettings(), 0.0)
    agent.listens_since = 1.5
    return Ears(lambda birth: base, headers_of, told.put_nowait), agent, told


async def test_an_ear_tells_of_a_change_once() -> None:
    async with service(CHANGED) as (base, asked):
        ears, agent, told = listener(base)

        ears.heed(agent)
        async with asyncio.timeout(30):
            handle = await told.get()
        ears.heed(agent)  # the exchange that follows is on its way
        ears.close_all()

    assert (handle, told.empty(), asked) == ("sim-1", True, [1.5])


async def test_an_ear_listens_on_after_an_answer_without_news_and_after_a_change() -> None:
    async with service(NOTHING, NOTHING, CHANGED) as (base, asked):
        ears, agent, told = listener(base)

        ears.heed(agent)
        async with asyncio.timeout(30):
            await told.get()
            agent.listens_since = 2.5
            ears.heed(agent)
            await told.get()
        ears.close_all()

    assert asked == [1.5, 1.5, 1.5, 2.5]


@pytest.mark.parametrize("status", ["404 Not Found", "503 Service Unavailable"])
async def test_an_ear_that_is_refused_does_not_insist(status: str) -> None:
    async with service(reply(status, b"{}")) as (base, asked):
        ears, agent, told = listener(base)

        for _ in range(20):
            ears.heed(agent)
            await asyncio.sleep(0.01)
        ears.close_all()

    assert told.empty()
    assert len(asked) <= 1


async def test_an_ear_without_a_service_is_quiet() -> None:
    ears, agent, told = listener("http://127.0.0.1:9")

    for _ in range(20):
        ears.heed(agent)
        await asyncio.sleep(0.01)
    ears.close_all()

    assert told.empty()
