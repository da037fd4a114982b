"""A followed stream that breaks, ends early or is away for a while: nothing twice, nothing left out."""

import json
from collections.abc import Iterator

import httpx
import pytest
from shunter import Client, errors
from shunter.following import Patience
from shunter.sse import Message, read_messages
from shunter.transport import Retries

Cut = int | httpx.Response | Exception | None

AT = "2026-11-30T04:53:15.123Z"


class StreamingService:
    """Holds a job's events and streams them; each connection may be cut after a number of events."""

    def __init__(self, total: int, cuts: list[Cut], *, cleanly: bool = False) -> None:
        self.events = [{"seq": seq, "at": AT, "type": "tick", "data": {}} for seq in range(1, total + 1)]
        self.cuts = cuts
        self.cleanly = cleanly
        self.resumed_after: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if "text/event-stream" not in request.headers.get("Accept", ""):
            return self._page(int(request.url.params["after"]))
        after = request.headers["Last-Event-ID"]
        self.resumed_after.append(after)
        cut = self.cuts.pop(0) if self.cuts else None
        if isinstance(cut, Exception):
            raise cut
        if isinstance(cut, httpx.Response):
            return cut
        return httpx.Response(200, content=self._stream(int(after), cut))

    def _page(self, after: int) -> httpx.Response:
        # What a stream missed, but never all of it at once: the client has to go back to streaming.
        items = self.events[after : after + 1]
        return httpx.Response(200, json={"items": items, "next_after": after + len(items), "ended": not items})

    def _stream(self, after: int, cut: int | None) -> Iterator[bytes]:
        yield b"retry: 1000\n\n: hello\n\n"
        for event in self.events[after : None if cut is None else after + cut]:
            yield f"id: {event['seq']}\nevent: tick\ndata: {json.dumps(event)}\n\n".encode()
        if cut is not None and not self.cleanly:
            yield b"id: 999\nevent: tick\ndata: {half a mess"
            raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


def client_of(service: StreamingService) -> Client:
    return Client(
        "http://service.test",
        "shk_key",
        retries=Retries(sleep=lambda _: None),
        transport=httpx.MockTransport(service),
    )


def test_a_stream_that_breaks_is_taken_up_after_the_last_event() -> None:
    service = StreamingService(9, cuts=[3, 2, None])

    with client_of(service) as client:
        seen = [event.seq for event in client.follow_events("job_1")]

    assert seen == list(range(1, 10))
    assert service.resumed_after == ["0", "3", "5"]


def test_a_stream_that_ends_in_good_order_before_the_job_is_not_believed() -> None:
    service = StreamingService(9, cuts=[3, 2, None], cleanly=True)

    with client_of(service) as client:
        seen = [event.seq for event in client.follow_events("job_1")]

    assert seen == list(range(1, 10))


def test_a_service_that_is_away_for_a_while_is_waited_for() -> None:
    gone: list[Cut] = [httpx.ConnectError("refused"), httpx.Response(503)]
    service = StreamingService(4, cuts=[2, *gone, *gone, None])

    with client_of(service) as client:
        seen = [event.seq for event in client.follow_events("job_1", after=1)]

    assert seen == [2, 3, 4]


def test_a_job_that_does_not_exist_ends_the_following_at_once() -> None:
    service = StreamingService(4, cuts=[httpx.Response(404, json={"type": "/v1/problems/not_found"})])

    with client_of(service) as client, pytest.raises(errors.NotFound):
        list(client.follow_events("job_1"))


def test_patience_ends_with_the_last_error() -> None:
    service = StreamingService(1, cuts=[])
    with client_of(service) as client:
        impatient = Patience(client._transport, limit_s=0.0)

        with pytest.raises(errors.Unreachable, match="gone"):
            impatient.bear(errors.Unreachable("gone"))


@pytest.mark.parametrize(
    ("lines", "messages"),
    [
        (["data: a", ""], [Message("message", "a", "")]),
        (["event: tick", "id: 7", "data: a", "data: b", ""], [Message("tick", "a\nb", "7")]),
        (["id: 7", "", "data:a", ""], [Message("message", "a", "7")]),
        ([": comment", "", "retry: 10", "", "unknown: x", ""], []),
        (["data: never finished"], []),
        (["data", ""], [Message("message", "", "")]),
        (["id: 7", "id: bad\0", "data:  two spaces", ""], [Message("message", " two spaces", "7")]),
    ],
)
def test_the_wire_format_is_read_as_the_standard_says(lines: list[str], messages: list[Message]) -> None:
    assert list(read_messages(lines)) == messages
