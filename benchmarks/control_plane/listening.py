"""Thousands of agents that listen on one API process: memory of each, what taking and waiting cost, how soon they hear.

    python benchmarks/control_plane/listening.py [--agents 5000] [--told 200]

SQLite, and PostgreSQL where SHUNTER_TEST_POSTGRES_URL names a server. Memory is the growth of the process's RSS once
all listen. Latency is from the commit of a decision about a node to the answer: half of it is the pause between looks.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from api_load import Api, api, database
from exchange_cost import make_nodes
from http_load import request
from shunter_schemas.node_sync import ListenRequest, Phase
from shunter_store.installation import signing
from shunter_store.node import ledger, orders
from shunter_store.sql.database import Database
from shunter_store.tables import nodes
from sqlalchemy import select
from streams import cpu_s, rss_kb, until

WAIT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=5000)
    parser.add_argument("--told", type=int, default=200)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start; {options.agents} agents that listen")
    print("             kB an agent   µs a request   CPU waiting   p50 ms   p99 ms")
    for kind in ("sqlite", "postgresql"):
        with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder, ExitStack() as stack:
            url = stack.enter_context(database(kind, Path(folder)))
            if url is None:
                continue
            with api(Path(folder), url) as served, closing(Database.connect(url)) as store:
                secret = (Path(folder) / "signing-key").read_bytes().strip()
                figures = asyncio.run(measure(served, secret, store, options.agents, options.told))
                print(f"{kind:12s} {figures}", flush=True)


async def measure(served: Api, secret: bytes, store: Database, agents: int, told: int) -> str:
    url, pid = served.url, served.pid
    names = store.write(lambda conn: make_nodes(conn, agents, 1))
    since = dict(store.read(lambda conn: orders.changed_lately(conn, 3600.0)))
    ids = dict(
        store.read(lambda conn: [(row.token, row.id) for row in conn.execute(select(nodes.c.token, nodes.c.id))])
    )
    await listen_all(url, [body(secret, name, since[name] + 1.0) for name in names[:50]])  # they hear at once
    await asyncio.sleep(1.0)
    before_kb, before_s = rss_kb(pid), cpu_s(pid)
    heard: dict[str, float] = {}
    asked = await listen_all(url, [body(secret, name, since[name]) for name in names])
    tasks = [asyncio.create_task(hear(name, reader, heard)) for name, (reader, _) in zip(names, asked, strict=True)]
    await asyncio.sleep(1.0)
    grown_kb, took_s = rss_kb(pid) - before_kb, cpu_s(pid) - before_s
    waited_s = cpu_s(pid)
    await asyncio.sleep(5.0)
    waiting = (cpu_s(pid) - waited_s) / 5.0
    late_ms = []
    for name in names[:told]:
        store.write(lambda conn, name=name: ledger.want(conn, [ids[name]], phase=Phase.STOP, generation=1))  # type: ignore[misc]
        at = time.time()
        await until(partial(heard.__contains__, name), within_s=30)
        late_ms.append(1000 * (heard[name] - at))
    for task in tasks:
        task.cancel()
    for _, writer in asked:
        writer.transport.abort()
    late_ms.sort()
    p99 = late_ms[int(len(late_ms) * 0.99)]
    return (
        f"{grown_kb / agents:10.1f} {1e6 * took_s / agents:14.0f} {100 * waiting:11.1f} % "
        f"{statistics.median(late_ms):8.0f} {p99:8.0f}"
    )


def body(secret: bytes, name: str, since: float) -> bytes:
    """The request of a node that heard what was decided at `since`."""
    headers = {"authorization": f"Bearer {signing.node_sync_token(secret, name)}", "content-type": "application/json"}
    message = ListenRequest(node=name, since=since, wait_s=WAIT_S)
    return request("POST", "/v1/node/listen", headers, message.model_dump_json().encode())


async def listen_all(url: str, bodies: list[bytes]) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection for each, 50 opened at a time."""
    place = urlsplit(url)

    async def one(sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(sent)
        return reader, writer

    opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for start in range(0, len(bodies), 50):
        opened += await asyncio.gather(*map(one, bodies[start : start + 50]))
    return opened


async def hear(name: str, reader: asyncio.StreamReader, heard: dict[str, float]) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head:
        raise RuntimeError(head.decode())
    heard[name] = time.time()


if __name__ == "__main__":
    main()
