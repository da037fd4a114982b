"""What one job tells, piece by piece from any place on: its events, its lines, its metric points.

A feed holds a position and nothing else. It reads from the store what comes behind it, so that a client that is slow,
or comes back after the process was started anew, costs no memory and misses nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Sequence
from itertools import groupby
from typing import Final, Literal, NamedTuple, Protocol

from shunter_schemas.api import MetricSeries, MetricsUpdate
from shunter_schemas.states import TERMINAL_STATES
from shunter_store.job import events
from shunter_store.report import metrics
from shunter_store.report.metrics import Arrival
from sqlalchemy import Connection

from shunter_service.context import Service
from shunter_service.output import log_reading
from shunter_service.output.log_index import Selection
from shunter_service.output.log_pages import Budget
from shunter_service.output.log_text import Needle
from shunter_service.showing.views import event_view
from shunter_service.streams.queries import Head, heads
from shunter_service.streams.tailer import Watch
from shunter_service.web.answers import encode

_EVENTS: Final = 200
_LINES: Final = 500
_LINES_BYTES: Final = 128 << 10
_POINTS: Final = 256

End = Literal["ended", "deleted", "not_found"]


class Item(NamedTuple):
    """Something to tell: the position behind it, what it is, and itself as JSON."""

    position: int
    name: str
    data: bytes


class Batch(NamedTuple):
    """What a read found."""

    items: Sequence[Item]
    position: int
    """Behind everything that was looked at."""
    ended: bool
    """Whether nothing will come behind it."""


class Feed(Protocol):
    """Something that can be followed from a position."""

    position: int
    end: End | None

    @property
    def is_due(self) -> bool:
        """Whether there may be something behind the position."""
        ...

    async def read(self) -> Sequence[Item]:
        """The next items, a handful; none: there is nothing at the moment. May find the end, which sets `end`."""
        ...


class JobFeed(ABC):
    """What is the same in the feeds of a job. Followers at one position read together."""

    def __init__(self, service: Service, watch: Watch, job_id: str, position: int) -> None:
        self.position = position
        self.end: End | None = None
        self.job_id = job_id
        self._service = service
        self._watch = watch
        self._seen: Hashable = ...
        self._more = True

    @property
    def is_due(self) -> bool:
        return self.end is None and (self._more or self._sign(self._watch.head) != self._seen)

    async def read(self) -> Sequence[Item]:
        sign, position = self._sign(self._watch.head), self.position
        # At one version of the watch, who reads later may take what was read before: what came since wakes it again.
        key = (type(self), self.job_id, self._which(), position, self._watch.version)
        batch = await self._service.sharing.get(key, lambda: self._read(position))
        if batch is None:
            self.end = "deleted"
            return ()
        self.position = batch.position
        self._more = batch.position > position and not batch.ended
        self._seen = sign
        if batch.ended:
            self.end = "ended"
        return batch.items

    @abstractmethod
    def _sign(self, head: Head | None) -> Hashable:
        """What moves whenever there is something new for this feed."""

    def _which(self) -> Hashable:
        """What two feeds of this kind of the same job may differ in."""
        return None

    @abstractmethod
    async def _read(self, position: int) -> Batch | None:
        """What comes behind a position; None: the job is no more."""


class EventFeed(JobFeed):
    """The history; positions are numbers of events."""

    def _sign(self, head: Head | None) -> Hashable:
        return head and (head.event_seq, head.state)

    async def _read(self, position: int) -> Batch | None:
        def read(conn: Connection) -> Batch | None:
            head = heads(conn, [self.job_id]).get(self.job_id)
            if head is None:
                return None
            rows = events.page(conn, self.job_id, position, _EVENTS)
            last = rows[-1].seq if rows else position
            items = [Item(row.seq, row.type, encode(event_view(row))) for row in rows]
            return Batch(items, last, head.state in TERMINAL_STATES and last >= head.event_seq)

        return await self._service.db.aread(read)


class LineFeed(JobFeed):
    """Output; positions are numbers of lines of what was selected."""

    def __init__(
        self,
        service: Service,
        watch: Watch,
        selection: Selection,
        position: int,
        needle: Needle | None = None,
        which: Hashable = None,
    ) -> None:
        super().__init__(service, watch, selection.job_id, position)
        self._selection = selection
        self._needle = needle
        self._whose = which

    def _sign(self, head: Head | None) -> Hashable:
        return head and (head.log_lines, head.state)

    def _which(self) -> Hashable:
        return self._whose

    async def _read(self, position: int) -> Batch | None:
        found = await self._service.db.aread(lambda conn: heads(conn, [self.job_id]))
        if not found:
            return None
        asked = log_reading.Asked(line=position + 1, limit=_LINES, needle=self._needle)
        page = await log_reading.read(self._service, self._selection, asked, Budget(answer_bytes=_LINES_BYTES))
        items = [Item(line.line, "line", encode(line)) for line in page.items]
        return Batch(items, page.next_line - 1, page.ended)


class PointFeed(JobFeed):
    """Metric points as they arrive; positions are their numbers."""

    def _sign(self, head: Head | None) -> Hashable:
        return head and (head.metric_seq, head.state)

    async def _read(self, position: int) -> Batch | None:
        def read(conn: Connection) -> Batch | None:
            head = heads(conn, [self.job_id]).get(self.job_id)
            if head is None:
                return None
            found = metrics.arrivals(conn, self.job_id, position, _POINTS)
            items = list(_updates(found, position))
            last = found[-1].number if found else position
            return Batch(items, last, head.state in TERMINAL_STATES and last == position)

        return await self._service.db.aread(read)


def columns(points: Sequence[Arrival], names: Collection[str] | None = None) -> tuple[MetricSeries, ...]:
    """Points as a series for each name, in the order in which they arrived."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for point in points:
        for name, value in point.values.items():
            if names is None or name in names:
                found.setdefault(name, []).append((point.step, point.at, value))
    made = []
    for name in sorted(found):
        steps, times_s, values = zip(*found[name], strict=True)
        made.append(MetricSeries(name=name, steps=steps, times_s=times_s, values=values))
    return tuple(made)


def _updates(points: Sequence[Arrival], position: int) -> list[Item]:
    found = []
    for generation, group in groupby(points, key=lambda point: point.generation):
        part = list(group)
        # Points of the time before numbers have 0: behind them the reader still stands where it stood.
        last = max(part[-1].number, position)
        update = MetricsUpdate(generation=generation, series=columns(part), next_after=last)
        found.append(Item(last, "metrics", encode(update)))
    return found
