"""Following what a job reports while it lives: a stream that survives restarts of the service and lost connections.

Each item has a place (an event's `seq`, a line's number), so that a stream that broke is taken up after the last item
that was yielded: nothing twice, nothing left out. A stream that ended without error is believed only when the poll
twin of the same resource says that it has ended; a service that shuts down ends its streams in good order too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from shunter.errors import ShunterError
from shunter.sse import read_messages
from shunter.transport import Transport, passes

T = TypeVar("T")

_SILENCE_S = 60.0
"""The service sends a comment every 15 s; a connection that is silent for this long is dead."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """What the poll twin answered: items after a place, and whether none will follow."""

    items: tuple[T, ...]
    ended: bool


@dataclass(frozen=True, slots=True)
class Feed(Generic[T]):
    """One resource that can be followed."""

    path: str
    params: Mapping[str, Any]
    parse: Callable[[str], T]
    """The data of a stream's message as an item."""
    place: Callable[[T], int]
    poll: Callable[[int], Page[T]]
    """The items after a place."""


def follow(transport: Transport, feed: Feed[T], *, after: int = 0, patience_s: float = 120.0) -> Iterator[T]:
    """Items from `after` on as they come, until the job has no more.

    Args:
        patience_s: how long the service may be away in one piece before `Unreachable` is raised.
    """
    patience = Patience(transport, patience_s)
    while True:
        before = after
        try:
            for item in _stream(transport, feed, after):
                after = feed.place(item)
                patience.reset()
                yield item
            page = feed.poll(after)
        except ShunterError as error:
            patience.bear(error)
            continue
        for item in page.items:
            after = feed.place(item)
            yield item
        if page.ended and not page.items:
            return
        if after > before:
            patience.reset()
        else:
            patience.pause()


class Patience:
    """Bears a service that is away: pauses between tries, and gives up after `limit_s` in one piece."""

    def __init__(self, transport: Transport, limit_s: float) -> None:
        self._retries = transport.retries
        self._limit_s = limit_s
        self.reset()

    def reset(self) -> None:
        """The service answered."""
        self._failures = 0
        self._since: float | None = None

    def bear(self, error: ShunterError) -> None:
        """Pause before the next try; raises `error` when it will not pass by itself or has lasted too long."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not passes(error) or now - self._since >= self._limit_s:
            raise error
        self.pause()

    def pause(self) -> None:
        """Wait a little, longer each time until the next `reset`."""
        self._failures += 1
        self._retries.sleep(self._retries.pause_s(self._failures))


def _stream(transport: Transport, feed: Feed[T], after: int) -> Iterator[T]:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    with transport.stream(feed.path, params=feed.params, headers=headers, silence_s=_SILENCE_S) as response:
        for message in read_messages(response.iter_lines()):
            item = feed.parse(message.data)
            if feed.place(item) > after:
                after = feed.place(item)
                yield item
