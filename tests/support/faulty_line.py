"""A TCP line between two processes on loopback, with weather: delays, resets, silence in one direction or both.

What stays on the way while a line is silent arrives when it clears, as it does behind a real partition.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

_LINGER_0 = struct.pack("ii", 1, 0)
_PIECE = 65536


@dataclass(frozen=True, slots=True)
class Weather:
    """What happens to the bytes of a line."""

    name: str
    delay_s: float = 0.0
    """Of every piece, each way."""
    piece: int = _PIECE
    """Bytes that go at once; small ones with a delay make a slow line."""
    there: bool = True
    """Whether what the client sends arrives."""
    back: bool = True
    """Whether what the service answers arrives."""
    resets: bool = False
    """Every connection breaks, and every new one at once."""
    edit: Callable[[bytes], bytes] | None = None
    """What becomes of each piece that the client sends; None: it stays as it is."""


CLEAR = Weather("clear")
FAR = Weather("far", delay_s=0.15)
SLOW = Weather("slow", delay_s=0.05, piece=400)
RESET = Weather("reset", resets=True)
SILENT = Weather("silent", there=False, back=False)
HALF_OPEN = Weather("half-open", back=False)
"""Requests are carried out and their answers are lost on the way."""

BAD_WEATHER: Sequence[Weather] = (FAR, SLOW, RESET, SILENT, HALF_OPEN)


class FaultyLine:
    """Takes connections on a port of its own and carries each on to the first target in turn that takes it."""

    def __init__(self, *targets: int) -> None:
        """`targets`: ports on loopback."""
        self.targets = list(targets)
        self._weather = CLEAR
        self._turn = 0
        self._connections: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty-line", daemon=True)
        self._thread.start()
        self._server, self._cleared = self._call(self._open())
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def weather(self) -> Weather:
        return self._weather

    def turn(self, weather: Weather) -> None:
        """The weather changes now."""
        self._call(self._turned(weather))

    def close(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _open(self) -> tuple[asyncio.Server, asyncio.Condition]:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0), asyncio.Condition()

    async def _turned(self, weather: Weather) -> None:
        self._weather = weather
        if weather.resets:
            for writer in list(self._connections):
                _reset(writer)
        async with self._cleared:
            self._cleared.notify_all()

    async def _end(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._connections:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        service_writer: asyncio.StreamWriter | None = None
        try:
            while not self._weather.there and not self._weather.resets:  # the handshake itself gets no further
                await self._change()
            if self._weather.resets:
                return _reset(writer)
            service_reader, service_writer = await self._connect()
            self._connections.add(service_writer)
            there = asyncio.create_task(self._carry(reader, service_writer, there=True))
            back = asyncio.create_task(self._carry(service_reader, writer, there=False))
            _, others = await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                other.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
        except OSError:
            _reset(writer)
        finally:
            for end in (writer, service_writer):
                if end is not None:
                    self._connections.discard(end)
                    end.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To the next target in turn that takes it.

        Raises:
            OSError: none does.
        """
        refused: OSError = ConnectionRefusedError("no target")
        for _ in self.targets:
            self._turn += 1
            try:
                return await asyncio.open_connection("127.0.0.1", self.targets[self._turn % len(self.targets)])
            except OSError as error:
                refused = error
        raise refused

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, there: bool) -> None:
        while data := await reader.read(self._weather.piece):
            while not (self._weather.there if there else self._weather.back):
                await self._change()
            if self._weather.delay_s:
                await asyncio.sleep(self._weather.delay_s)
            edit = self._weather.edit if there else None
            writer.write(data if edit is None else edit(data))
            await writer.drain()

    async def _change(self) -> None:
        async with self._cleared:
            await self._cleared.wait()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Break the connection with RST instead of FIN."""
    connection = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
    writer.transport.abort()


@contextmanager
def faulty_line(*targets: int) -> Iterator[FaultyLine]:
    """A line to services on these ports."""
    line = FaultyLine(*targets)
    try:
        yield line
    finally:
        line.close()
