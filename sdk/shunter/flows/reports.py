"""What a job reports: events, output, metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from shunter_schemas.api import Event, EventPage, LogLine, LogPage

from shunter.errors import Unprocessable
from shunter.flows.answers import get, job_path
from shunter.flows.following import Feed, Polled
from shunter.metrics import Metrics
from shunter.steps import Call, Flow, Item, ItemFlow, ask

T = TypeVar("T")

_SEARCH: Final = "q"
"""The parameter of the log pages for a text to look for."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Which lines of output."""

    rank: int | None = None
    stream: str | None = None
    generation: int | None = None
    search: str | None = None

    def params(self) -> dict[str, Any]:
        """By the API's names."""
        return {"rank": self.rank, "stream": self.stream, "generation": self.generation, _SEARCH: self.search}


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
        yield from _lines(job_id, which, tail=tail, after=after)
    except Unprocessable as error:
        if which.search is None or not any(fault.pointer.endswith(_SEARCH) for fault in error.faults):
            raise
        yield from _searched_here(job_id, which, tail=tail, after=after)


def _lines(job_id: str, which: Lines, *, tail: int | None, after: int) -> ItemFlow[LogLine]:
    params: Mapping[str, Any] = {"tail": tail} if tail is not None else {"line": after + 1}
    while (page := (yield from ask(_log_page(job_id, which, params)))).items:
        for line in page.items:
            yield Item(line)
        params = {"line": page.items[-1].line + 1}


def _searched_here(job_id: str, which: Lines, *, tail: int | None, after: int) -> ItemFlow[LogLine]:
    """For a service that knows no search: every line is fetched, and looked at here."""
    words, last, line = str(which.search).casefold(), deque[LogLine](maxlen=tail), after + 1
    while (page := (yield from ask(_log_page(job_id, replace(which, search=None), {"line": line})))).items:
        for found in (each for each in page.items if words in each.text.casefold()):
            if tail is None:
                yield Item(found)
            else:
                last.append(found)
        line = page.items[-1].line + 1
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
