"""Server-sent events: the wire format read into messages (HTML Living Standard, section 9.2.6)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One event. `id` is the last id that the stream has named so far, as a reader sends it in `Last-Event-ID`."""

    event: str
    data: str
    id: str


class Messages:
    """Takes a stream line by line, without line ends; comments and an unfinished last event make no message."""

    def __init__(self) -> None:
        self.place = ""
        """Where a reader goes on who has taken everything so far: the last id, which may have come without data."""
        self._event = ""
        self._data: list[str] = []
        self._last_id = ""

    def take(self, line: str) -> Message | None:
        """The message that this line completes."""
        if not line:
            message = Message(self._event or "message", "\n".join(self._data), self._last_id) if self._data else None
            self._event, self._data, self.place = "", [], self._last_id
            return message
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._last_id = value
        return None
