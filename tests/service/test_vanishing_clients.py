"""Clients that vanish or hang, over real sockets: nothing of them stays, and nobody else notices."""

import asyncio
import resource
import socket
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from shunter_store.job import events
from support.event_streams import eventually, following
from support.service_app import App, served_app
from support.store_rows import new_job

GONE_WITHIN_S = 25.0
"""It takes well under 5 s; the rest is for a busy machine. A client that hangs is cut off after 60 s."""


@pytest.fixture
async def served(tmp_path: Path, sqlite_url: str) -> AsyncIterator[App]:
    async with served_app(tmp_path, sqlite_url, keep_alive_s=0.2, stalled_s=2) as running:
        yield running


@pytest.fixture
def job_id(served: App) -> str:
    return new_job(served.database).id


async def open_stream(app: App, path: str, *, buffer_bytes: int | None = None) -> socket.socket:
    """A stream on a socket that is read only up to its first bytes."""
    client = socket.socket()
    if buffer_bytes is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", app.http.base_url.port))
    lines = (
        f"GET {path} HTTP/1.1",
        "Host: x",
        "Accept: text/event-stream",
        f"Authorization: {app.http.headers['Authorization']}",
    )
    await loop.sock_sendall(client, "\r\n".join([*lines, "", ""]).encode())
    assert (await loop.sock_recv(client, 12)) == b"HTTP/1.1 200"
    return client


def followers(app: App) -> int:
    jobs = sum(watch.followers for watch in app.service.tailer._watches.values())
    return jobs + sum(len(watch.wakes) for watch in app.service.tailer._projects.values())


def paths(job_id: str) -> list[str]:
    own = f"/v1/jobs/{job_id}"
    return [f"{own}/events", f"{own}/logs", f"{own}/metrics", f"/v1/stream?topics=jobs,job:{job_id}:events"]


@pytest.mark.parametrize("how", ["close", "reset", "half close"])
async def test_whoever_leaves_is_forgotten_at_once(served: App, job_id: str, how: str) -> None:
    clients = [await open_stream(served, path) for path in paths(job_id) * 5]
    await eventually(lambda: followers(served) == 25, "all follow")

    left_at = time.monotonic()
    for client in clients:
        if how == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "half close":
            client.shutdown(socket.SHUT_WR)
        else:
            client.close()
    await eventually(lambda: followers(served) == 0, "nobody follows")

    assert time.monotonic() - left_at < GONE_WITHIN_S
    assert not served.service.tailer._watches
    assert not served.service.tailer._projects
    for client in clients:
        client.close()


async def test_whoever_takes_nothing_is_cut_and_costs_no_memory_meanwhile(served: App, job_id: str) -> None:
    stalled = [await open_stream(served, path, buffer_bytes=4096) for path in paths(job_id)[:2] * 10]
    part = served.worker_part(job_id)
    part.run()
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    note = [("note", {"text": "x" * 1000})] * 1000
    async with following(served, f"/v1/jobs/{job_id}/events") as lively:
        for _ in range(10):
            served.database.write(lambda conn: events.append_all(conn, job_id, note))
            part.print(f"{'y' * 1000}\n" * 1000)
        await lively.until(lambda: len(lively.messages) == 10_004, "whoever reads gets all of it")
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
        await eventually(lambda: followers(served) == 1, "those who take nothing are cut")

        assert not lively.ended

    # Twenty times 10 MB wait in the store; of each, a socket's buffer and a page at most are held. The test's own
    # reader and the database's cache grow too.
    assert grown_kb < 80_000
    for client in stalled:
        client.close()


async def test_whoever_reads_slowly_lags_and_misses_nothing(served: App, job_id: str) -> None:
    slow = await open_stream(served, f"/v1/jobs/{job_id}/logs", buffer_bytes=4096)
    part = served.worker_part(job_id)
    part.print("".join(f"{number:07d} {'z' * 500}\n" for number in range(3000)))
    received = b""

    while received.count(b"\nid: ") < 3000 or not received.endswith(b"\n\n\r\n"):
        received += await asyncio.get_running_loop().sock_recv(slow, 50_000)
        await asyncio.sleep(0.002)
    slow.close()

    assert all(f"{number:07d} zzz".encode() in received for number in range(0, 3000, 97))
    assert received.count(b"event: line") == 3000
