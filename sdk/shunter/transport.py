"""Carries out flows: one connection pool to the service, blocking. `async_transport` is its twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

import httpx

from shunter.connection import Connection
from shunter.errors import NotConfigured, ShunterError
from shunter.retries import Retries, Tries, passes, problem, unreachable
from shunter.steps import Call, Done, Flow, Item, ItemFlow, Open, Pause, Read, Request, Step, Work

__all__ = ["Retries", "Transport", "passes"]

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0


class Transport:
    """Requests to one service. Closing it closes its connections; threads may share it."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout_s: float = 30.0,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.connection = connection
        self.retries = retries or Retries()
        self._timeout_s = timeout_s
        self._http = made(httpx.Client, connection, timeout_s, transport=transport)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def run(self, flow: Flow[T]) -> T:
        """What comes of a flow."""
        with _Answer(self) as answer:
            done = self._advance(flow, answer)
        assert isinstance(done, Done), "a flow without items"
        result: T = done.value
        return result

    def iterate(self, flow: ItemFlow[T]) -> Iterator[T]:
        """The items of a flow."""
        with _Answer(self) as answer:
            try:
                while isinstance(item := self._advance(flow, answer), Item):
                    yield item.value
            finally:
                flow.close()

    def _advance(self, flow: Flow[T] | ItemFlow[T], answer: _Answer) -> Item[T] | Done[Any]:
        """Carry out steps until there is an item, or no more."""
        try:
            step = next(flow)
            while not isinstance(step, Item):
                try:
                    came = self._do(step, answer)
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

    def _do(self, step: Step, answer: _Answer) -> Any:
        match step:
            case Call():
                return step.read(self._send(step.request))
            case Open():
                return answer.open(step)
            case Read():
                return answer.read()
            case Pause():
                return self.retries.sleep(step.seconds)
            case Work():
                return step.function()

    def _send(self, request: Request) -> httpx.Response:
        tries = Tries(self.connection.url, self.retries, request.tries)
        while True:
            try:
                response = self._http.request(**self.parts(request))
            except httpx.RequestError as cause:
                pause_s = tries.broke(cause)
            else:
                if not response.is_error:
                    return response
                pause_s = tries.refused(response)
            self.retries.sleep(pause_s)

    def parts(self, request: Request) -> dict[str, Any]:
        """A request as httpx takes it."""
        body = request.body if isinstance(request.body, bytes) else request.body()
        return {**request_options(request, self._timeout_s), "content": body or None}


class _Answer:
    """An answer that is read as it arrives."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._stack = ExitStack()
        self._pieces: Iterator[str] | Iterator[bytes] = iter(())

    def __enter__(self) -> _Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def open(self, step: Open) -> int:
        self._stack.close()
        transport = self._transport
        try:
            stream = transport._http.stream(**transport.parts(step.request), follow_redirects=True)
            response = self._stack.enter_context(stream)
            if response.is_error:
                response.read()
                raise problem(response)
        except httpx.RequestError as cause:
            raise unreachable(transport.connection.url, cause) from cause
        self._pieces = response.iter_lines() if step.by_line else response.iter_raw()
        return response.status_code

    def read(self) -> str | bytes | None:
        try:
            piece = next(self._pieces, None)
        except httpx.RequestError as cause:
            raise unreachable(self._transport.connection.url, cause) from cause
        if piece is None:
            self._stack.close()
        return piece


def made(kind: Callable[..., T], connection: Connection, timeout_s: float, **more: Any) -> T:
    """An httpx client for the service.

    Raises:
        NotConfigured: the environment names proxies or certificates that cannot be used.
    """
    try:
        return kind(**http_options(connection, timeout_s), **more)
    except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
        raise NotConfigured(
            f"{connection.url} cannot be reached with the environment's settings: {error}",
            hint="look at HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY and SSL_CERT_FILE",
        ) from error


def http_options(connection: Connection, timeout_s: float) -> dict[str, Any]:
    """How an httpx client for the service is made."""
    return {
        "base_url": connection.url,
        "headers": {"Authorization": f"Bearer {connection.api_key}", "User-Agent": "shunter-python"},
        "timeout": httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
        "trust_env": not connection.is_loopback,
    }


def request_options(request: Request, timeout_s: float) -> dict[str, Any]:
    """A request without its body, as httpx takes it."""
    read_s = timeout_s if request.timeout_s is None else request.timeout_s
    return {
        "method": request.method,
        "url": request.path,
        "params": given(request.params),
        "headers": dict(request.headers),
        "timeout": httpx.Timeout(read_s + request.hold_s, connect=min(CONNECT_TIMEOUT_S, read_s), pool=timeout_s),
    }


def given(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that have a value."""
    return {name: value for name, value in params.items() if value is not None}
