"""Following what a job reports while it lives: a stream that survives restarts of the service and lost connections.

Each item has a place (an event's `seq`, a line's number), so that a stream that broke is taken up after the last item
that was yielded: nothing twice, nothing left out. A stream that ended without error is believed only when the poll
twin of the same resource says that it has ended; a service that shuts down ends its streams in good order too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from shunter.errors import ShunterError
from shunter.retries import Patience
from shunter.sse import Messages
from shunter.steps import Call, Item, ItemFlow, Request, ask, next_line, opened, pause

T = TypeVar("T")

_SILENCE_S = 20.0
"""The service sends a comment every 15 s; a connection that is silent for longer is looked after."""


@dataclass(frozen=True, slots=True)
class Polled(Generic[T]):
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
    poll: Callable[[int], Call[Polled[T]]]
    """The items after a place."""


def follow(feed: Feed[T], patience: Patience, after: int = 0) -> ItemFlow[T]:
    """Items from `after` on as they come, until the job has no more."""
    while True:
        before = after
        try:
            yield from opened(_stream(feed, after), by_line=True)
            messages = Messages()
            while (line := (yield from next_line())) is not None:
                patience.reset()
                message = messages.take(line)
                item = feed.parse(message.data) if message else None
                if item is not None and feed.place(item) > after:
                    after = feed.place(item)
                    yield Item(item)
            page = yield from ask(feed.poll(after))
        except ShunterError as error:
            yield from pause(patience.bear(error))
            continue
        for item in page.items:
            after = feed.place(item)
            yield Item(item)
        if page.ended and not page.items:
            return
        if after > before:
            patience.reset()
        else:
            yield from pause(patience.pause_s())


def _stream(feed: Feed[Any], after: int) -> Request:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    return Request("GET", feed.path, params=feed.params, headers=headers, timeout_s=_SILENCE_S)
