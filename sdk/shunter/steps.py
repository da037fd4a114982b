"""What a client does, as a plan that does nothing by itself: each verb is written once, for both kinds of client.

A *flow* is a generator of steps. Whoever carries it out does each step (blocking in `Transport`, awaiting in
`AsyncTransport`), sends back what came of it, and throws a `ShunterError` where the step failed. A flow that yields
`Item`s makes an iterator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx

T = TypeVar("T")

Body = bytes | Callable[[], Iterable[bytes]]
"""A body that can be sent again: bytes, or a function that opens the stream anew for each try."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Parameters that are None are left out."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body = b""
    timeout_s: float | None = None
    """Longest silence while the answer is awaited or read. None: as the client is set."""
    hold_s: float = 0.0
    """How long the service may hold the answer back (a long poll), on top of the time-out."""
    tries: int | None = None
    """How often it may be sent. None: as the client is set."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request whose answer is read whole; what comes of it is what `read` makes of the answer."""

    request: Request
    read: Callable[[httpx.Response], T]


@dataclass(frozen=True, slots=True)
class Open:
    """A request whose answer is read as it arrives, by lines or in pieces; what comes of it is the HTTP status.

    Redirects (to a signed URL of an object store) are followed; the key is not sent along to another host. An answer
    that is open already is closed.
    """

    request: Request
    by_line: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """The next line or piece of the answer that is open, or None at its end, which closes it."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """Something that takes this machine a while, such as packing a folder."""

    function: Callable[[], T]


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """Something for the caller of an iterator."""

    value: T


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The end of a flow, and what came of it."""

    value: T


Step = Call[Any] | Open | Read | Pause | Work[Any]
Flow = Generator[Step, Any, T]
"""A flow that comes to one result."""
ItemFlow = Generator[Step | Item[T], Any, None]
"""A flow that hands out items on the way."""


def ask(call: Call[T]) -> Flow[T]:
    """The step of sending one request; what its answer says."""
    answer: T = yield call
    return answer


def work(function: Callable[[], T]) -> Flow[T]:
    """The step of running a function that takes a while; what it returns."""
    result: T = yield Work(function)
    return result


def pause(seconds: float) -> Flow[None]:
    """The step of waiting."""
    yield Pause(seconds)


def opened(request: Request, *, by_line: bool = False) -> Flow[int]:
    """The step of opening an answer that is read as it arrives; its HTTP status."""
    status: int = yield Open(request, by_line)
    return status


def next_line() -> Flow[str | None]:
    """The step of reading a line of the open answer."""
    line: str | None = yield Read()
    return line


def next_piece() -> Flow[bytes | None]:
    """The step of reading a piece of the open answer."""
    piece: bytes | None = yield Read()
    return piece
