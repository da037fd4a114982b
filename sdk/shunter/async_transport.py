"""Carries out flows: one connection pool to the service, for an event loop. `transport` is its twin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import httpx

from shunter.connection import Connection
from shunter.errors import ShunterError
from shunter.retries import Retries, Tries, problem, unreachable
from shunter.steps import Call, Done, Flow, Item, ItemFlow, Open, Pause, Read, Request, Step, Work
from shunter.transport import made, request_options

T = TypeVar("T")


class AsyncTransport:
    """Requests to one service. Closing it closes its connections; tasks of one event loop may share it."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout_s: float = 30.0,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.connection = connection
        self.retries = retries or Retries()
        self._timeout_s = timeout_s
        self._http = made(httpx.AsyncClient, connection, timeout_s, transport=transport)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run(self, flow: Flow[T]) -> T:
        """What comes of a flow."""
        async with _Answer(self) as answer:
            done = await self._advance(flow, answer)
        assert isinstance(done, Done), "a flow without items"
        result: T = done.value
        return result

    async def iterate(self, flow: ItemFlow[T]) -> AsyncIterator[T]:
        """The items of a flow."""
        async with _Answer(self) as answer:
            try:
                while isinstance(item := await self._advance(flow, answer), Item):
                    yield item.value
            finally:
                flow.close()

    async def _advance(self, flow: Flow[T] | ItemFlow[T], answer: _Answer) -> Item[T] | Done[Any]:
        """Carry out steps until there is an item, or no more."""
        try:
            step = next(flow)
            while not isinstance(step, Item):
                try:
                    came = await self._do(step, answer)
                except ShunterError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(came)
        except StopIteration as end:
            return Done(end.value)
        except BaseException:
            flow.close()
            raise
        return step

    async def _do(self, step: Step, answer: _Answer) -> Any:
        match step:
            case Call():
                return step.read(await self._send(step.request))
            case Open():
                return await answer.open(step)
            case Read():
                return await answer.read()
            case Pause():
                return await anyio.sleep(step.seconds)
            case Work():
                return await anyio.to_thread.run_sync(step.function)

    async def _send(self, request: Request) -> httpx.Response:
        tries = Tries(self.connection.url, self.retries, request.tries)
        while True:
            try:
                response = await self._http.request(**self.parts(request))
            except httpx.RequestError as cause:
                pause_s = tries.broke(cause)
            else:
                if not response.is_error:
                    return response
                pause_s = tries.refused(response)
            await anyio.sleep(pause_s)

    def parts(self, request: Request) -> dict[str, Any]:
        """A request as httpx takes it."""
        body = request.body if isinstance(request.body, bytes) else _read_aside(request.body)
        return {**request_options(request, self._timeout_s), "content": body or None}


class _Answer:
    """An answer that is read as it arrives."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._stack = AsyncExitStack()
        self._pieces: AsyncIterator[str] | AsyncIterator[bytes] = _nothing()

    async def __aenter__(self) -> _Answer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def open(self, step: Open) -> int:
        await self._stack.aclose()
        transport = self._transport
        try:
            stream = transport._http.stream(**transport.parts(step.request), follow_redirects=True)
            response = await self._stack.enter_async_context(stream)
            if response.is_error:
                await response.aread()
                raise problem(response)
        except httpx.RequestError as cause:
            raise unreachable(transport.connection.url, cause) from cause
        self._pieces = response.aiter_lines() if step.by_line else response.aiter_raw()
        return response.status_code

    async def read(self) -> str | bytes | None:
        try:
            piece: str | bytes | None = await anext(self._pieces, None)
        except httpx.RequestError as cause:
            raise unreachable(self._transport.connection.url, cause) from cause
        if piece is None:
            await self._stack.aclose()
        return piece


async def _read_aside(body: Callable[[], Iterable[bytes]]) -> AsyncIterator[bytes]:
    """A stream from the disk, read beside the event loop."""
    pieces: Iterator[bytes] = iter(body())
    while (piece := await anyio.to_thread.run_sync(next, pieces, None)) is not None:
        yield piece


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
