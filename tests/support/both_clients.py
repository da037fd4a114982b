"""The same test for both kinds of client: an `AsyncClient` that is called as if it blocked, and a double for either."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from shunter import AsyncClient, Client

Kind = Literal["blocking", "awaiting"]
KINDS: tuple[Kind, ...] = ("blocking", "awaiting")

Handler = Callable[[httpx.Request], httpx.Response]

_END = object()


@contextmanager
def client_of(kind: Kind, *arguments: Any, handler: Handler | None = None, **options: Any) -> Iterator[Client]:
    """A client of this kind, open. With `handler` it talks to that in place of a service."""
    if kind == "blocking":
        transport = httpx.MockTransport(handler) if handler else None
        with Client(*arguments, transport=transport, **options) as client:
            yield client
        return
    with start_blocking_portal() as portal:
        awaiting = AsyncClient(*arguments, transport=AwaitedMock(handler) if handler else None, **options)
        try:
            yield cast("Client", _Awaited(awaiting, portal))
        finally:
            portal.call(awaiting.close)


class _Awaited:
    def __init__(self, client: AsyncClient, portal: BlockingPortal) -> None:
        self._client = client
        self._portal = portal

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        return self._blocking(attribute) if inspect.ismethod(attribute) else attribute

    def _blocking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            came = self._portal.call(lambda: method(*arguments, **options))
            return self._pulled(came) if isinstance(came, AsyncIterator) else came

        return call

    def _pulled(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        async def pull() -> Any:
            return await anext(items, _END)

        while (item := self._portal.call(pull)) is not _END:
            yield item


class AwaitedMock(httpx.MockTransport):
    """A mock whose handler may answer with a stream of plain bytes."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if not isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = _Stream(response.stream)
        return response


class _Stream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._stream:
            yield piece
