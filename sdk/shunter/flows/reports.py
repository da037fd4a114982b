"""What a job reports: events, output, metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from shunter_schemas.api import Event, EventPage, LogLine, LogPage, MetricsUpdate, StreamPage

from shunter.errors import Unprocessable
from shunter.flows.answers import get, job_path
from shunter.flows.following import Feed, Polled
from shunter.metrics import Metrics
from shunter.steps import Call, Flow, Item, ItemFlow, ask

T = TypeVar("T")

_SEARCH: Final = "q"
"""The parameter of the log pages for a text to look for."""
_PAGE: Final = 10_000
"""So many lines a page holds at most."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Which lines of output."""

    rank: int | None = None
    stream: str | None = None
    generation: int | None = None
    search: str | None = None
    case_counts: bool = False

    def params(self) -> dict[str, Any]:
        """By the API's names."""
        chosen = {"rank": self.rank, "stream": self.stream, "generation": self.generation, _SEARCH: self.search}
        return {**chosen, "case": "sensitive" if self.search is not None and self.case_counts else None}

    def folded(self, text: str) -> str:
        """A text as it is compared."""
        return text if self.case_counts else text.casefold()


def events(job_id: str, after: int) -> ItemFlow[Event]:
    """What has happened so far."""
    while (page := (yield from ask(_event_page(job_id, after)))).items:
        for event in page.items:
            yield Item(event)
        after = page.items[-1].seq


def event_feed(job_id: str) -> Feed[Event]:
    """Events, to be followed."""
    return Feed(
        path=job_path(job_id, "events"),
        params={},
        parse=Event.model_validate_json,
        place=lambda event: event.seq,
        poll=lambda place: _polled(_event_page(job_id, place, tries=1)),
    )


def logs(job_id: str, which: Lines, *, tail: int | None, after: int) -> ItemFlow[LogLine]:
    """Lines so far: those after line `after`, or the last `tail` ones."""
    try:
        if tail is None:
            yield from _lines(job_id, which, after)
        else:
            yield from _last_lines(job_id, which, tail)
    except Unprocessable as error:
        if which.search is None or not any(fault.pointer.endswith(_SEARCH) for fault in error.faults):
            raise
        yield from _searched_here(job_id, which, tail=tail, after=after)


def _lines(job_id: str, which: Lines, after: int) -> ItemFlow[LogLine]:
    """Page by page; one may be empty and not the last, where a search has looked for long."""
    line = after + 1
    while True:
        page = yield from ask(_log_page(job_id, which, {"line": line}))
        for item in page.items:
            yield Item(item)
        if page.next_line > page.lines_total:
            return
        line = page.next_line


def _last_lines(job_id: str, which: Lines, tail: int) -> ItemFlow[LogLine]:
    """The last lines, looked for from the end."""
    found: list[LogLine] = []
    place: dict[str, int] = {}
    while len(found) < tail:
        page = yield from ask(_log_page(job_id, which, {"tail": min(tail - len(found), _PAGE), **place}))
        found = [*page.items, *found]
        if page.first_line is None or page.first_line <= 1:
            break
        place = {"before": page.first_line}
    for line in found:
        yield Item(line)


def _searched_here(job_id: str, which: Lines, *, tail: int | None, after: int) -> ItemFlow[LogLine]:
    """For a service that knows no search: every line is fetched, and looked at here."""
    words, last = which.folded(str(which.search)), deque[LogLine](maxlen=tail)
    every = replace(which, search=None, case_counts=False)
    for step in _lines(job_id, every, after):
        if not isinstance(step, Item):
            yield step
        elif words in which.folded(step.value.text):
            if tail is None:
                yield step
            else:
                last.append(step.value)
    for found in last:
        yield Item(found)


def log_feed(job_id: str, which: Lines) -> Feed[LogLine]:
    """Lines, to be followed."""
    return Feed(
        path=job_path(job_id, "logs"),
        params=which.params(),
        parse=LogLine.model_validate_json,
        place=lambda line: line.line,
        poll=lambda place: _polled(_log_page(job_id, which, {"line": place + 1}, tries=1)),
    )


def point_feed(job_id: str) -> Feed[MetricsUpdate]:
    """Metric points, to be followed. Their poll twin is that of the stream over topics."""

    def poll(place: int) -> Call[Polled[MetricsUpdate]]:
        call = get(StreamPage, "/v1/stream", {"topics": f"job:{job_id}:metrics@{place}"}, tries=1)

        def polled(response: Any) -> Polled[MetricsUpdate]:
            page = call.read(response)
            return Polled(tuple(item.metrics for item in page.items if item.metrics is not None), page.ended)

        return Call(call.request, polled)

    return Feed(
        path=job_path(job_id, "metrics"),
        params={},
        parse=MetricsUpdate.model_validate_json,
        place=lambda update: update.next_after,
        poll=poll,
    )


def metrics(
    job_id: str, names: Sequence[str], from_step: int | None, to_step: int | None, max_points: int | None
) -> Flow[Metrics]:
    """Series by step."""
    params = {"name": list(names) or None, "from_step": from_step, "to_step": to_step, "max_points": max_points}
    return ask(get(Metrics, job_path(job_id, "metrics"), params))


def _event_page(job_id: str, after: int, tries: int | None = None) -> Call[EventPage]:
    return get(EventPage, job_path(job_id, "events"), {"after": after}, tries=tries)


def _log_page(job_id: str, which: Lines, place: Mapping[str, Any], tries: int | None = None) -> Call[LogPage]:
    return get(LogPage, job_path(job_id, "logs"), {**which.params(), **place}, tries=tries)


def _polled(call: Call[Any]) -> Call[Polled[Any]]:
    read: Callable[[Any], Any] = call.read

    def polled(response: Any) -> Polled[Any]:
        page = read(response)
        return Polled(page.items, page.ended)

    return Call(call.request, polled)
