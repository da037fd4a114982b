"""1,000 streams on one API process: memory of each, how long news takes to reach all, and what waiting costs.

    python benchmarks/control_plane/streams.py [--streams 1000] [--rounds 20]

SQLite, and PostgreSQL where SHUNTER_TEST_POSTGRES_URL names a server. `one job`: every stream follows the same job;
`a job each`: 200 jobs, so that the watcher has something to look at. Memory is the growth of the process's RSS (with a
few streams opened and closed before, so that what is loaded once does not count). Latency is from the commit of an
event to its arrival: half of it is the watcher's pause of 250 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from api_load import api, database, submission
from http_load import drive, request
from shunter_store.job import events, job_lists
from shunter_store.sql.database import Database

CPU_TICKS = os.sysconf("SC_CLK_TCK")
NOTE = b'"type":"note"'


@dataclass(slots=True)
class Client:
    """One stream, and when its newest note came."""

    job_id: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    notes: int = 0
    at: float = 0.0
    task: asyncio.Task[None] | None = field(default=None)

    async def read(self) -> None:
        while data := await self.reader.read(1 << 16):
            if found := data.count(NOTE):
                self.notes += found
                self.at = time.time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start; {options.streams} streams")
    for kind in ("sqlite", "postgresql"):
        with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder, ExitStack() as stack:
            url = stack.enter_context(database(kind, Path(folder)))
            if url is not None:
                report(kind, url, Path(folder), options.streams, options.rounds)


def report(kind: str, database_url: str, folder: Path, streams: int, rounds: int) -> None:
    """Measure on one database, and print."""
    print(f"\n{kind}                 kB a stream   p50 ms   p99 ms   to all ms   CPU waiting   gone after s")
    for name, jobs_followed, topics in (
        ("events, one job", 1, "events"),
        ("events, a job each", 200, "events"),
        ("stream of 4, one job", 1, "all"),
    ):
        with api(folder, database_url) as served, closing(Database.connect(database_url)) as store:
            url, headers = served.url, {"Authorization": f"Bearer {served.key}"}
            drive(url, partial(submission, headers), expect=201, seconds=1.0)
            ids = [row.id for row in store.read(lambda conn: job_lists.page(conn, project="default", limit=200))]
            paths = [path(ids[number % jobs_followed % len(ids)], topics) for number in range(streams)]
            figures = asyncio.run(measure(url, headers, paths, store, ids[:jobs_followed], rounds))
            print(f"{name:22s} {figures}")


def path(job_id: str, topics: str) -> str:
    """What one client asks for."""
    if topics == "events":
        return f"/v1/jobs/{job_id}/events"
    return "/v1/stream?topics=jobs," + ",".join(f"job:{job_id}:{kind}" for kind in ("events", "logs", "metrics"))


async def measure(
    url: str, headers: dict[str, str], paths: Sequence[str], store: Database, job_ids: Sequence[str], rounds: int
) -> str:
    pid = server_pid(url)
    for client in await open_all(url, headers, paths[:50]):
        client.writer.close()
    await asyncio.sleep(1.0)
    before = rss_kb(pid)
    clients = await open_all(url, headers, paths)
    await asyncio.sleep(2.0)
    grown = rss_kb(pid) - before
    cpu = cpu_s(pid)
    await asyncio.sleep(4.0)
    waiting = (cpu_s(pid) - cpu) / 4.0
    took_ms: list[float] = []
    last_ms: list[float] = []
    for number in range(rounds):
        committed = {id_: await asyncio.to_thread(note, store, id_) for id_ in job_ids}
        await until(partial(all_have, clients, number + 1), within_s=30)
        each = [1000 * (client.at - committed[client.job_id]) for client in clients]
        took_ms += each
        last_ms.append(max(each))
    took_ms.sort()
    began = time.time()
    for client in clients:
        client.writer.transport.abort()
    await until(lambda: open_sockets(pid) < 30, within_s=30)
    gone_s = time.time() - began
    p99 = took_ms[int(len(took_ms) * 0.99)]
    return (
        f"{grown / len(clients):11.1f} {statistics.median(took_ms):8.0f} {p99:8.0f} "
        f"{statistics.median(last_ms):11.0f} {100 * waiting:11.1f} % {gone_s:14.1f}"
    )


def note(store: Database, job_id: str) -> float:
    """Write an event; when that was done."""
    store.write(lambda conn: events.append(conn, job_id, "note", {"n": 1}))
    return time.time()


async def open_all(url: str, headers: dict[str, str], paths: Sequence[str]) -> list[Client]:
    """Streams that are open, each read in the background; 50 are opened at a time."""
    place = urlsplit(url)

    async def one(path: str) -> Client:
        job_id = "job_" + path.partition("job_")[2][:26]
        client = Client(job_id, *await asyncio.open_connection(place.hostname, place.port))
        client.writer.write(request("GET", path, {**headers, "Accept": "text/event-stream"}))
        head = await client.reader.readuntil(b"retry: ")
        if b" 200 " not in head:
            raise RuntimeError(head.decode())
        client.task = asyncio.create_task(client.read())
        return client

    opened: list[Client] = []
    for start in range(0, len(paths), 50):
        opened += await asyncio.gather(*map(one, paths[start : start + 50]))
    return opened


def all_have(clients: Sequence[Client], notes: int) -> bool:
    return all(client.notes >= notes for client in clients)


async def until(predicate: Callable[[], bool], *, within_s: float) -> None:
    deadline = time.time() + within_s
    while not predicate():
        if time.time() > deadline:
            raise RuntimeError("it did not come")
        await asyncio.sleep(0.005)


def server_pid(url: str) -> int:
    """The process that listens there: a child of this one."""
    port = f":{urlsplit(url).port:04X}"
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{line[9]}]" for line in table if line[1].endswith(port) and line[3] == "0A"}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                if any(os.readlink(entry) in inodes for entry in (folder / "fd").iterdir()):
                    return int(folder.name)
            except OSError:
                continue
    raise RuntimeError(f"nobody listens at {url}")


def rss_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CPU_TICKS


def open_sockets(pid: int) -> int:
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += os.readlink(entry).startswith("socket:")
        except OSError:
            continue
    return found


if __name__ == "__main__":
    main()
