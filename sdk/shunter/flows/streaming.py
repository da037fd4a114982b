"""Following many things over one connection: the stream over topics, taken up where it broke."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field, ValidationError
from shunter_schemas.api import JobChange, StreamMessage

from shunter.errors import ShunterError
from shunter.retries import Patience
from shunter.sse import Message, Messages
from shunter.steps import Item, ItemFlow, Request, next_line, opened, pause

_PATH: Final = "/v1/stream"
_SILENCE_S: Final = 20.0
"""The service sends a comment every 15 s; a connection that is silent for longer is looked after."""
_JOBS_KNOWN: Final = 10_000


class TopicMessage(StreamMessage):
    """One message of a stream, and its place."""

    cursor: str = Field(
        default="",
        description="Pass it to `stream` to go on behind this message, in another process too.",
        examples=["bLlBcPIsp4Ec"],
    )


def stream(topics: Sequence[str], patience: Patience, cursor: str | None) -> ItemFlow[TopicMessage]:
    """Messages as they come, until every topic has ended."""
    reader = _Reader(topics)
    while True:
        told = False
        try:
            yield from opened(_request(topics, cursor), by_line=True)
            messages = Messages()
            while (line := (yield from next_line())) is not None:
                patience.reset()
                message = messages.take(line)
                cursor = messages.place or cursor
                item = reader.read(message) if message else None
                if item is not None:
                    told = True
                    yield Item(item)
        except ShunterError as error:
            yield from pause(patience.bear(error))
            continue
        if not reader.open_topics:
            return
        # It ended in good order, but not of itself: the service is being started anew.
        if not told:
            yield from pause(patience.pause_s())


def _request(topics: Sequence[str], cursor: str | None) -> Request:
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": cursor} if cursor else {})}
    return Request("GET", _PATH, params={"topics": ",".join(topics)}, headers=headers, timeout_s=_SILENCE_S)


class _Reader:
    """Makes messages of what the wire holds, and leaves out what says nothing new."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.open_topics = {topic.partition("@")[0] for topic in topics}
        self._jobs: dict[str, JobChange | None] = {}
        """As they were told last; None: deleted."""

    def read(self, message: Message) -> TopicMessage | None:
        try:
            told = TopicMessage.model_validate_json(message.data).model_copy(update={"cursor": message.id})
        except ValidationError as error:
            raise ShunterError(
                "the stream holds a message that is none", hint="is it a Shunter service, and of this version?"
            ) from error
        if told.end is not None:
            if told.topic not in self.open_topics:
                return None
            self.open_topics.discard(told.topic)
        elif (job_id := told.job.id if told.job else told.deleted) is not None:
            if job_id in self._jobs and self._jobs[job_id] == told.job:
                return None
            if len(self._jobs) >= _JOBS_KNOWN:
                self._jobs.clear()
            self._jobs[job_id] = told.job
        return told
