"""A followed stream that breaks, ends early or is away for a while: nothing twice, nothing left out."""

import json
from collections.abc import Iterator

import httpx
import pytest
from shunter import Client, errors
from shunter.retries import Outage, Patience, Retries
from shunter.sse import Message, Messages
from support.both_clients import Kind, client_of

Cut = int | httpx.Response | Exception | None

AT = "2026-11-30T04:53:15.123Z"
QUICK = Retries(first_pause_s=0.0)
GONE = errors.Unreachable("gone")


class StreamingService:
    """Holds a job's events and streams them; each connection may be cut after a number of events."""

    def __init__(self) -> None:
        self.events = [{"seq": seq, "at": AT, "type": "tick", "data": {}} for seq in range(1, 10)]
        self.cuts: list[Cut] = []
        self.cleanly = False
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


@pytest.fixture
def service() -> StreamingService:
    return StreamingService()


@pytest.fixture
def client(kind: Kind, service: StreamingService) -> Iterator[Client]:
    with client_of(kind, "http://service.test", "shk_key", handler=service, retries=QUICK) as client:
        yield client


def test_a_stream_that_breaks_is_taken_up_after_the_last_event(client: Client, service: StreamingService) -> None:
    service.cuts = [3, 2, None]

    seen = [event.seq for event in client.follow_events("job_1")]

    assert seen == list(range(1, 10))
    assert service.resumed_after == ["0", "3", "5"]


def test_a_stream_that_ends_in_good_order_before_the_job_is_not_believed(
    client: Client, service: StreamingService
) -> None:
    service.cuts, service.cleanly = [3, 2, None], True

    seen = [event.seq for event in client.follow_events("job_1")]

    assert seen == list(range(1, 10))


def test_a_service_that_is_away_for_a_while_is_waited_for(client: Client, service: StreamingService) -> None:
    gone: list[Cut] = [httpx.ConnectError("refused"), httpx.Response(503)]
    service.cuts = [2, *gone, *gone, None]

    seen = [event.seq for event in client.follow_events("job_1", after=1)]

    assert seen == list(range(2, 10))


class Endless(httpx.SyncByteStream):
    """Says hello and never ends by itself."""

    closed = False

    def __iter__(self) -> Iterator[bytes]:
        event = {"seq": 1, "at": AT, "type": "tick", "data": {}}
        yield f"data: {json.dumps(event)}\n\n".encode()
        yield from iter(lambda: b": nothing\n\n", None)

    def close(self) -> None:
        self.closed = True


def test_a_reader_that_has_seen_enough_closes_the_stream() -> None:
    stream = Endless()
    with client_of("blocking", "http://x", "k", handler=lambda _: httpx.Response(200, stream=stream)) as client:
        following = client.follow_events("job_1")

        first = next(following)
        del following

        assert first.seq == 1
        assert stream.closed


def test_a_job_that_does_not_exist_ends_the_following_at_once(client: Client, service: StreamingService) -> None:
    service.cuts = [httpx.Response(404, json={"type": "/v1/problems/not_found"})]

    with pytest.raises(errors.NotFound):
        list(client.follow_events("job_1"))


class TestPatience:
    def test_ends_with_the_last_error(self) -> None:
        impatient = Patience(Retries(), limit_s=0.0)

        with pytest.raises(errors.Unreachable, match="gone"):
            impatient.bear(GONE)

    def test_does_not_bear_what_will_not_pass(self) -> None:
        with pytest.raises(errors.NotFound):
            Patience(Retries(), limit_s=100.0).bear(errors.api_error(404, {}))

    def test_tells_of_an_outage_that_is_worth_it_and_of_its_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told: list[Outage | None] = []
        now_s = 100.0
        monkeypatch.setattr("time.monotonic", lambda: now_s)
        patience = Patience(Retries(), 100.0, told.append)

        patience.bear(GONE)
        now_s += 5.0
        patience.bear(GONE)
        patience.reset()
        patience.reset()

        outage, end = told
        assert outage is not None
        assert outage.error is GONE
        assert 5.0 <= outage.lasted_s < 10.0
        assert end is None

    def test_tries_again_just_when_an_outage_is_worth_telling(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told_at: list[float] = []
        now_s = 100.0
        monkeypatch.setattr("time.monotonic", lambda: now_s)
        monkeypatch.setattr("random.uniform", lambda _least, most: most)
        patience = Patience(Retries(), 100.0, lambda _outage: told_at.append(now_s))

        for _ in range(8):
            now_s += patience.bear(GONE)

        assert told_at[0] == pytest.approx(102.0, abs=0.02)

    def test_says_nothing_of_a_short_one(self) -> None:
        told: list[Outage | None] = []
        patience = Patience(Retries(), 100.0, told.append)

        patience.bear(GONE)
        patience.reset()

        assert told == []


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
    reader = Messages()

    assert [message for line in lines if (message := reader.take(line))] == messages
