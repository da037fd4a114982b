"""A million lines of output over four ranks: any window of them, the tail, a search. p50 and p99 of each.

    python benchmarks/control_plane/log_windows.py [--lines 1000000] [--rounds 100]

SQLite, and PostgreSQL where SHUNTER_TEST_POSTGRES_URL names a server; objects in a folder, and in a store that is
reached through fsspec (here in memory). Pieces are 1 MiB, as of a job that nobody looks at, or 250 lines, as of one
that is followed. The application is called in this process: what is measured is the way from the request to the answer
without a network. `CPU` is what this process computed meanwhile, the client included: on a busy machine it says more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path

import httpx
import structlog
from api_load import HERE, database
from shunter_schemas.node_sync import LogChunk
from shunter_service.app import create_app
from shunter_service.context import Service, open_service
from shunter_service.settings import ServiceSettings
from shunter_store import migrate
from shunter_store.installation import api_keys
from shunter_store.installation.settings import DataSettings
from shunter_store.report import logs
from sqlalchemy import Connection

KEY = "shk_of-a-benchmark"
RANKS = 4
WINDOW = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start; {options.lines} lines")
    for kind in ("sqlite", "postgresql"):
        for objects in ("folder", "fsspec"):
            for piece_lines in (12_500, 250):
                with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder, ExitStack() as stack:
                    url = stack.enter_context(database(kind, Path(folder)))
                    if url is None:
                        continue
                    print(f"\n{kind}, objects in {objects}, {piece_lines} lines a piece      p50 ms   p99 ms  CPU p50")
                    asyncio.run(report(url, Path(folder), objects, piece_lines, options.lines, options.rounds))


async def report(url: str, folder: Path, objects: str, piece_lines: int, lines: int, rounds: int) -> None:
    """Write the lines, then read them."""
    migrate.upgrade(url)
    settings = DataSettings(data_dir=folder, database_url=url)
    if objects == "fsspec":
        settings = settings.model_copy(update={"objects_url": f"memory://bench-{folder.name}"})
    service = open_service(settings, ServiceSettings())
    service.db.write(lambda conn: api_keys.add(conn, KEY, "bench", ["jobs:read", "jobs:write"]))
    transport = httpx.ASGITransport(create_app(service))  # type: ignore[arg-type]  # two spellings of ASGI
    service.tailer.start()
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://bench", headers=headers, timeout=60) as http:
        document = (HERE.parents[1] / "examples" / "tiny-lm-ddp.json").read_bytes()
        made = await http.post("/v1/jobs", content=document, headers={"Content-Type": "application/json"})
        job_id = made.raise_for_status().json()["id"]
        print_lines(service, job_id, lines, piece_lines)
        path = f"/v1/jobs/{job_id}/logs"

        async def ask(**params: object) -> httpx.Response:
            return (await http.get(path, params=params)).raise_for_status()  # type: ignore[arg-type]  # any scalar

        line = random.Random(0).randrange
        each = lines // RANKS
        await timed("any 200 lines, merged", lambda: ask(line=line(lines) + 1, limit=WINDOW), rounds)
        await timed("any 200 of a rank", lambda: ask(line=line(each) + 1, limit=WINDOW, rank=line(RANKS)), rounds)
        await timed(
            "any 200 of a rank's stdout",
            lambda: ask(line=line(each) + 1, limit=WINDOW, rank=line(RANKS), stream="stdout"),
            rounds,
        )
        await timed("the last 200", lambda: ask(tail=WINDOW), rounds)
        await timed("any 5,000 lines, merged", lambda: ask(line=line(lines) + 1, limit=5000), max(5, rounds // 5))
        await timed("search, a find nearby", lambda: ask(q=f"step {line(each) // 97 * 97} ", limit=1), 5)
        await timed("search, the last 10 finds", lambda: ask(q="LOSS 1.5", tail=10), max(5, rounds // 5))
        began = time.perf_counter()
        at, pages = 1, 0
        while at <= lines:
            at = (await ask(q="nowhere in it", line=at)).json()["next_line"]
            pages += 1
        print(f"{'search through all':34s} {1000 * (time.perf_counter() - began):10.0f} ms in {pages} requests")
    await service.close()


async def timed(name: str, ask: Callable[[], Awaitable[httpx.Response]], rounds: int) -> None:
    """Ask so often, and print."""
    took_ms, computed_ms = [], []
    for _ in range(rounds):
        began, computed = time.perf_counter(), time.process_time()
        await ask()
        took_ms.append(1000 * (time.perf_counter() - began))
        computed_ms.append(1000 * (time.process_time() - computed))
    took_ms.sort()
    median = statistics.median(took_ms)
    p99 = took_ms[int(len(took_ms) * 0.99)]
    print(f"{name:34s} {median:23.1f} {p99:8.1f} {statistics.median(computed_ms):8.1f}")


def print_lines(service: Service, job_id: str, lines: int, piece_lines: int) -> None:
    """What four ranks print, in pieces that arrive in turn."""
    texts = [
        (f"[rank {rank}] step {n} loss {1 + n % 1000 / 1000:.3f} tokens/s 51{n % 90 + 10}\n" for n in range(lines))
        for rank in range(RANKS)
    ]
    offsets = [0] * RANKS
    left = lines
    while left > 0:
        chunks = []
        for rank in range(RANKS):
            data = "".join(islice(texts[rank], min(piece_lines, max(0, left)))).encode()
            count = data.count(b"\n")
            left -= count
            if not count:
                continue
            key = f"{job_id}/1/logs/{rank}-{offsets[rank]:012d}"
            service.objects.put(key, [data])
            chunks.append(
                LogChunk(
                    rank=rank,
                    stream="stdout",
                    offset=offsets[rank],
                    length=len(data),
                    lines=count,
                    object=key,
                    first_at=1.0,
                    last_at=2.0,
                )
            )
            offsets[rank] += len(data)
        service.db.write(partial(add_all, job_id=job_id, chunks=chunks))


def add_all(conn: Connection, job_id: str, chunks: Sequence[LogChunk]) -> None:
    for chunk in chunks:
        logs.add_chunk(conn, job_id, 1, "j", chunk)


if __name__ == "__main__":
    main()
