"""Streams over feeds: they wait for news, tell it, and give a sign of life while there is none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Set
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from shunter_service.context import Service
from shunter_service.output.log_index import Selection
from shunter_service.streams import cursors
from shunter_service.streams.feeds import End, EventFeed, Feed, Item, JobFeed, LineFeed, PointFeed
from shunter_service.streams.jobs_feed import JobsFeed
from shunter_service.streams.tailer import Watch
from shunter_service.streams.topics import Topic
from shunter_service.web.sse import KEEP_ALIVE, OPENING, message, place

_log = structlog.get_logger("shunter.api")

_AFTER_TROUBLE_S: Final = 1.0
_MEMBERS: Final = {"events": "event", "logs": "line", "metrics": "metrics"}
"""The member of a message that holds the item, by the kind of topic; of `jobs` the item says it."""


async def follow_one(service: Service, job_id: str, make: Callable[[Watch], JobFeed]) -> AsyncGenerator[bytes]:
    """One feed of a job: its items as messages with their position as id, until it has ended."""
    wake = asyncio.Event()
    with service.tailer.watch(job_id, wake) as watch:
        feed = make(watch)
        one = _One(feed)
        yield OPENING
        async with aclosing(_pieces(service, _Followed([feed], [job_id], wake), one)) as pieces:
            async for piece in pieces:
                yield piece


async def follow_all(
    service: Service, project: str, topics: Sequence[Topic], own: Set[str], positions: Mapping[bytes, int]
) -> AsyncGenerator[bytes]:
    """Many topics as one stream of messages, each with the place over all topics as id, until all have ended.

    Args:
        own: the jobs among those of the topics that exist and are the project's.
        positions: where each topic is taken up, by `cursors.key_of` its name; others begin where the topic says.
    """
    wake = asyncio.Event()
    with ExitStack() as stack:
        many = _Many()
        for topic in topics:
            if topic.kind == "jobs":
                project_watch = stack.enter_context(service.tailer.watch_project(project, wake))
                await project_watch.ready()
                many.add(topic, JobsFeed(service, project_watch, positions.get(cursors.key_of(topic.name))))
            elif topic.job_id in own:
                watch = stack.enter_context(service.tailer.watch(topic.job_id, wake))
                many.add(topic, job_feed(service, watch, topic, positions))
        yield OPENING + many.opening() + b"".join(many.missing(topic) for topic in topics if topic.job_id not in own)
        async with aclosing(_pieces(service, _Followed(many.feeds, sorted(own), wake), many)) as pieces:
            async for piece in pieces:
                yield piece


def job_feed(service: Service, watch: Watch, topic: Topic, positions: Mapping[bytes, int]) -> JobFeed:
    """The feed of a topic of a job, where the positions or else the topic say that it is taken up."""
    position = positions.get(cursors.key_of(topic.name), topic.after)
    if topic.kind == "events":
        return EventFeed(service, watch, topic.job_id, position)
    if topic.kind == "metrics":
        return PointFeed(service, watch, topic.job_id, position)
    return LineFeed(service, watch, Selection(topic.job_id), position)


def topic_item(topic: Topic, item: Item) -> bytes:
    """An item as a message of a stream over topics."""
    return f'{{"topic":"{topic.name}","{_MEMBERS.get(topic.kind, item.name)}":'.encode() + item.data + b"}"


def topic_end(topic: Topic, end: End) -> bytes:
    """The message that nothing more comes for a topic."""
    return f'{{"topic":"{topic.name}","end":"{end}"}}'.encode()


class _Wire(Protocol):
    """How a stream tells of its feeds."""

    def tell(self, feed: Feed, items: Sequence[Item]) -> bytes:
        """New items of a feed, and its end if that was found."""
        ...

    def still_here(self) -> bytes:
        """A sign of life."""
        ...


class _One:
    """A stream over one feed: positions are the ids, names the events."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._told = feed.position

    def tell(self, feed: Feed, items: Sequence[Item]) -> bytes:
        if items:
            self._told = items[-1].position
        return b"".join(message(item.data, id_=str(item.position), event=item.name) for item in items)

    def still_here(self) -> bytes:
        if self._feed.position == self._told:
            return KEEP_ALIVE
        self._told = self._feed.position
        return KEEP_ALIVE + place(str(self._told))


class _Many:
    """A stream over topics: the id is a cursor over all of them."""

    def __init__(self) -> None:
        self.feeds: list[Feed] = []
        self._topics: list[Topic] = []
        self._keys: list[bytes] = []
        self._positions: list[int] = []
        self._told = ""

    def add(self, topic: Topic, feed: Feed) -> None:
        self.feeds.append(feed)
        self._topics.append(topic)
        self._keys.append(cursors.key_of(topic.name))
        self._positions.append(feed.position)

    def opening(self) -> bytes:
        """Where the stream begins, so that one that breaks before the first message is taken up there."""
        return place(self._cursor())

    def missing(self, topic: Topic) -> bytes:
        """A topic of a job that there is not; nothing for others."""
        return message(topic_end(topic, "not_found"), id_=self._cursor()) if topic.job_id else b""

    def tell(self, feed: Feed, items: Sequence[Item]) -> bytes:
        at = self.feeds.index(feed)
        topic = self._topics[at]
        told = []
        for item in items:
            self._positions[at] = item.position
            told.append(message(topic_item(topic, item), id_=self._cursor()))
        self._positions[at] = feed.position
        if feed.end is not None:
            told.append(message(topic_end(topic, feed.end), id_=self._cursor()))
        return b"".join(told)

    def still_here(self) -> bytes:
        told = self._told
        cursor = self._cursor()
        return KEEP_ALIVE if cursor == told else KEEP_ALIVE + place(cursor)

    def _cursor(self) -> str:
        self._told = cursors.encode(zip(self._keys, self._positions, strict=True))
        return self._told


@dataclass(frozen=True, slots=True)
class _Followed:
    """What a stream follows, the jobs that it looks at, and what wakes it."""

    feeds: Sequence[Feed]
    job_ids: Sequence[str]
    wake: asyncio.Event


async def _pieces(service: Service, followed: _Followed, wire: _Wire) -> AsyncGenerator[bytes]:
    """What a stream sends, until every feed has ended or the process does."""
    live = list(followed.feeds)
    spoke_at = time.monotonic()
    while live and not service.tailer.closing:
        followed.wake.clear()
        calm = True
        for feed in live:
            if feed.is_due:
                try:
                    piece = wire.tell(feed, await feed.read())
                except Exception as error:  # the database may come back; the client keeps its place meanwhile
                    _log.warning("a stream waits", error=repr(error)[:300])
                    calm = False
                    break
                if piece:
                    yield piece
                    spoke_at = time.monotonic()
        live = [feed for feed in live if feed.end is None]
        for job_id in followed.job_ids:
            service.lookers.note(job_id)
        if calm and any(feed.is_due for feed in live):
            continue
        silence_s = max(0.0, service.settings.keep_alive_s - (time.monotonic() - spoke_at))
        if live and not await _news(service, followed.wake, silence_s, calm=calm):
            yield wire.still_here()
            spoke_at = time.monotonic()


async def _news(service: Service, wake: asyncio.Event, within_s: float, *, calm: bool) -> bool:
    """Wait for news, or after trouble for a while; False: it is time for a sign of life."""
    if calm:
        return await service.tailer.wait(wake, within_s)
    await asyncio.sleep(min(_AFTER_TROUBLE_S, within_s))
    return within_s > _AFTER_TROUBLE_S
