"""Server-sent events: the wire format read into messages (HTML Living Standard, section 9.2.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One event. `id` is the last id that the stream has named so far, as a reader sends it in `Last-Event-ID`."""

    event: str
    data: str
    id: str


def read_messages(lines: Iterable[str]) -> Iterator[Message]:
    """The messages in a stream of lines without their line ends; comments and an unfinished last event are dropped."""
    event, last_id, data = "", "", list[str]()
    for line in lines:
        if not line:
            if data:
                yield Message(event or "message", "\n".join(data), last_id)
            event, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
        elif name == "id" and "\0" not in value:
            last_id = value
