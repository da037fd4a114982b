"""Streams over a real connection: resumed, ended in time, and cleaned up when the client is gone."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from shunter_schemas.states import Reason
from shunter_store.job import wishes
from support.service_app import App, served_app
from support.store_rows import new_job
from support.waiting import wait_until

STREAM = {"Accept": "text/event-stream"}
HISTORY = ["job.created", *["job.state"] * 3, "job.outcome", *["job.state"] * 2]
"""The events of a job that ran and ended."""


@dataclass(frozen=True)
class Message:
    id: int
    event: str
    data: str


@pytest.fixture
async def served(tmp_path: Path, sqlite_url: str) -> AsyncIterator[App]:
    async with served_app(tmp_path, sqlite_url, keep_alive_s=0.2) as running:
        yield running


async def eventually(predicate: Callable[[], object], description: str) -> None:
    """`wait_until` beside an event loop that has to go on."""
    await asyncio.to_thread(wait_until, predicate, description=description)


async def messages(response: httpx.Response) -> AsyncIterator[Message]:
    """The messages of a stream; a comment is one with the event `comment`."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line.startswith(":"):
            yield Message(0, "comment", line)
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield Message(int(fields["id"]), fields["event"], fields["data"])
            fields = {}


async def collect(app: App, path: str, **headers: str) -> list[Message]:
    """All messages of a stream that ends, without its comments."""
    async with app.http.stream("GET", path, headers={**STREAM, **headers}) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        return [message async for message in messages(response) if message.event != "comment"]


async def test_the_events_of_an_ended_job_come_in_order_and_the_stream_ends(served: App) -> None:
    job = new_job(served.database)
    served.worker_part(job.id).run()
    served.worker_part(job.id).end(Reason.DONE)

    found = await asyncio.wait_for(collect(served, f"/v1/jobs/{job.id}/events"), 30)

    assert [message.id for message in found] == list(range(1, len(found) + 1))
    assert [message.event for message in found] == HISTORY
    assert json.loads(found[-1].data)["data"]["to"] == "succeeded"


async def test_events_come_as_they_happen_with_comments_in_between(served: App) -> None:
    job = new_job(served.database)
    found: list[Message] = []

    async def follow() -> None:
        async with served.http.stream("GET", f"/v1/jobs/{job.id}/events", headers=STREAM) as response:
            async for message in messages(response):
                found.append(message)  # noqa: PERF401 - seen from outside while it grows

    following = asyncio.create_task(follow())
    await eventually(lambda: any(message.event == "comment" for message in found), "a comment keeps the stream alive")
    before = [message.event for message in found if message.event != "comment"]
    await asyncio.to_thread(served.worker_part(job.id).run)
    await eventually(lambda: sum(message.event == "job.state" for message in found) == 3, "the steps are told")
    await asyncio.to_thread(served.worker_part(job.id).end, Reason.DONE)
    await asyncio.wait_for(following, 30)

    assert before == ["job.created"]
    assert [message.id for message in found if message.event != "comment"] == list(range(1, len(HISTORY) + 1))


async def test_a_stream_goes_on_behind_the_last_event_that_was_seen(served: App) -> None:
    job = new_job(served.database)
    served.worker_part(job.id).run()
    served.worker_part(job.id).end(Reason.DONE)

    by_header = await collect(served, f"/v1/jobs/{job.id}/events", **{"Last-Event-ID": "4"})
    by_query = await collect(served, f"/v1/jobs/{job.id}/events?after=4")
    beyond = [
        await asyncio.wait_for(collect(served, f"/v1/jobs/{job.id}/{what}", **{"Last-Event-ID": id_}), 30)
        for what in ("events", "logs", "metrics")
        for id_ in ("99", "9" * 20)
    ]

    assert [message.id for message in by_header] == [5, 6, 7]
    assert by_query == by_header
    assert beyond == [[]] * 6


async def test_many_events_come_whole(served: App) -> None:
    job = new_job(served.database)
    for _ in range(300):
        served.database.write(lambda conn: wishes.request_cancel(conn, job.id, by="tests"))
    part = served.worker_part(job.id)
    part.end(Reason.CANCELLED_BY_USER)

    found = await collect(served, f"/v1/jobs/{job.id}/events")

    assert [message.id for message in found] == list(range(1, len(found) + 1))
    assert json.loads(found[-1].data)["data"]["to"] == "cancelled"


async def test_lines_come_as_they_arrive_until_no_more_can(served: App) -> None:
    job = new_job(served.database)
    part = served.worker_part(job.id)
    part.run()
    part.print("one\ntwo\n")
    following = asyncio.create_task(collect(served, f"/v1/jobs/{job.id}/logs?rank=0"))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(part.print, "three\n")
    await asyncio.to_thread(part.print, "other rank\n", rank=1)
    await asyncio.to_thread(part.end, Reason.DONE)

    found = await asyncio.wait_for(following, 30)

    assert [(message.id, json.loads(message.data)["text"]) for message in found] == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
    ]


async def test_lines_go_on_behind_the_last_that_was_seen(served: App) -> None:
    job = new_job(served.database)
    part = served.worker_part(job.id)
    part.run()
    part.print("one\ntwo\nthree\n")
    part.end(Reason.DONE)

    found = await collect(served, f"/v1/jobs/{job.id}/logs", **{"Last-Event-ID": "2"})

    assert [json.loads(message.data)["text"] for message in found] == ["three"]


async def test_a_stream_of_an_unknown_job_is_a_404_problem(served: App) -> None:
    answer = await served.http.get("/v1/jobs/job_01kb9m4t8zq3v5x7y9a1c3e5g7/events", headers=STREAM)

    assert answer.status_code == 404
    assert answer.headers["Content-Type"] == "application/problem+json"


async def test_clients_that_went_away_leave_nothing_behind(served: App) -> None:
    job = new_job(served.database)
    streams = [asyncio.create_task(collect(served, f"/v1/jobs/{job.id}/events")) for _ in range(30)]
    await eventually(lambda: followers(served, job.id) == 30, "thirty clients follow")

    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)

    await eventually(lambda: followers(served, job.id) == 0, "nobody follows any more")
    assert not served.service.tailer._watches


def followers(app: App, job_id: str) -> int:
    watch = app.service.tailer._watches.get(job_id)
    return watch.followers if watch else 0


async def test_a_shutdown_ends_streams_and_long_polls_at_once(tmp_path: Path, sqlite_url: str) -> None:
    async with served_app(tmp_path, sqlite_url) as served:
        job = new_job(served.database)
        stream = asyncio.create_task(collect(served, f"/v1/jobs/{job.id}/events"))
        poll = asyncio.create_task(served.http.get(f"/v1/jobs/{job.id}?wait_s=60&after_revision=1"))
        await eventually(lambda: followers(served, job.id) == 2, "both wait")
        began = asyncio.get_running_loop().time()

    found, answer = await asyncio.wait_for(asyncio.gather(stream, poll), 30)

    assert asyncio.get_running_loop().time() - began < 30
    assert [message.event for message in found] == ["job.created"]
    assert answer.status_code == 200


async def test_an_upload_that_breaks_off_stores_nothing(served: App) -> None:
    port = served.http.base_url.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/bundles HTTP/1.1\r\nHost: x\r\nContent-Type: application/gzip\r\nContent-Length: 1000000\r\n"
        b"Authorization: " + served.http.headers["Authorization"].encode() + b"\r\n\r\n" + b"x" * 5000
    )
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.close()
    del reader

    healthy = await served.http.get("/healthz")

    assert healthy.status_code == 200
    assert not list((served.service.data.data_dir / "uploads").glob("*"))
    assert not (served.service.data.data_dir / "objects").exists()


async def test_a_shutdown_gives_up_an_upload_that_does_not_come(tmp_path: Path, sqlite_url: str) -> None:
    async with served_app(tmp_path, sqlite_url) as served:
        _, writer = await asyncio.open_connection("127.0.0.1", served.http.base_url.port)
        writer.write(
            b"POST /v1/bundles HTTP/1.1\r\nHost: x\r\nContent-Type: application/gzip\r\nContent-Length: 1000000\r\n"
            b"Authorization: " + served.http.headers["Authorization"].encode() + b"\r\n\r\n" + b"x" * 5000
        )
        await eventually(lambda: served.service.transfers._uploads._threads, "the upload has a thread")
        began = asyncio.get_running_loop().time()

    assert asyncio.get_running_loop().time() - began < 30
    writer.close()


async def test_a_document_that_is_too_large_is_refused_before_it_was_sent(served: App) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.http.base_url.port)
    writer.write(
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n"
        b"Authorization: " + served.http.headers["Authorization"].encode() + b"\r\n\r\n"
    )

    status = await asyncio.wait_for(reader.readline(), 30)
    writer.close()

    assert status.startswith(b"HTTP/1.1 413")
