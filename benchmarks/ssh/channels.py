"""Many nodes over SSH in one worker: do their exchanges keep their pace, and what does that cost?

One host in namespaces holds the folders of all nodes and plays their agents: each one posts to the port that its own
connection leads back from, every few seconds. Everything between is real: sshd, one connection a node, the relay.

    benchmarks/ssh/channels.py --nodes 200 --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from shunter_providers.contract import (
    Capabilities,
    Identity,
    Instance,
    Intent,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    Price,
    SshEndpoint,
)
from shunter_providers.registry import Registry
from shunter_schemas.states import NodeState
from shunter_store.migrate import upgrade
from shunter_store.node import reaching
from shunter_store.sql.database import Database
from shunter_workers.channels.duty import SHARDS, Channels, Room
from shunter_workers.channels.keys import JobKeys
from shunter_workers.launching import Origin
from support.control_plane import plain
from support.hosts import Host, Pool, make_pool
from support.node_rows import intended
from support.store_rows import new_job

EVERY_S = 5.0
AGENTS = """
import asyncio, json, pathlib, sys, time
every_s, seconds, body = float(sys.argv[1]), float(sys.argv[2]), b"{" + b" " * 1500 + b"}"
nodes = sorted(pathlib.Path("/root/.shunter/nodes").iterdir())
took, late, failed = [], [], []

async def agent(folder, number):
    end = time.monotonic() + seconds
    due = time.monotonic() + every_s * number / len(nodes)
    kept = None
    while due < end:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        begun = time.monotonic()
        try:
            if kept is None:  # as real agents do, it keeps the connection from one exchange to the next
                port = int((folder / "service-url").read_text().rpartition(":")[2])
                kept = await asyncio.open_connection("127.0.0.1", port)
            reader, writer = kept
            head = "POST /v1/node/sync HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"
            writer.write("\\r\\n".join([*head, "", ""]).encode() + body)
            answer = await reader.readuntil(b"\\r\\n\\r\\n")
            await reader.readexactly(2)
            (took if answer.startswith(b"HTTP/1.1 200") else failed).append(time.monotonic() - begun)
        except (OSError, EOFError) as error:
            failed.append(str(error))
            kept = None
        due += every_s
        late.append(max(0.0, time.monotonic() - due))

async def main():
    await asyncio.gather(*(agent(folder, number) for number, folder in enumerate(nodes)))
    took.sort()
    at = lambda share: took[min(len(took) - 1, int(share * len(took)))] if took else None
    print(json.dumps({"exchanges": len(took), "failed": len(failed), "p50_ms": 1e3 * at(0.5), "p99_ms": 1e3 * at(0.99),
                      "worst_ms": 1e3 * took[-1], "late": sum(1 for one in late if one > 0)}))

asyncio.run(main())
"""


@dataclass
class Cloud:
    """Shows one machine as all of its nodes."""

    endpoint: SshEndpoint
    capabilities: ClassVar[Capabilities] = Capabilities(bootstrap="ssh", shared_hosts=True)

    async def whoami(self) -> Identity:
        return Identity("me")

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        return []

    async def create(self, intent: Intent) -> str:
        raise AssertionError("the nodes are there already")

    async def get(self, handle: str) -> NodeView:
        return NodeView(handle, None, NodeCondition.RUNNING, ssh=self.endpoint)

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        return []

    async def terminate(self, handle: str) -> bool:
        return True

    async def close(self) -> None:
        """Nothing is held."""


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=200)
    arguments.add_argument("--seconds", type=float, default=60.0)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as made, make_pool(Path(made) / "pool", 1) as pool:
        upgrade(f"sqlite:///{made}/shunter.db")
        with closing(Database.connect(f"sqlite:///{made}/shunter.db")) as database:
            print(json.dumps(asyncio.run(measure(database, pool, Path(made), given.nodes, given.seconds)), indent=1))


async def measure(database: Database, pool: Pool, folder: Path, nodes: int, seconds: float) -> dict[str, object]:
    """Connect all, let the agents post, and say what was seen."""
    host = pool.hosts[0]
    fill(database, host, nodes)
    service = await asyncio.start_server(answer, "127.0.0.1", 0)
    (folder / "api-url").write_text(f"http://127.0.0.1:{service.sockets[0].getsockname()[1]}")
    shards = open_shards(database, pool, folder)
    begun = time.monotonic()
    working = asyncio.create_task(work(shards))
    while (up := connected(host)) < nodes:
        await asyncio.sleep(0.5)
        print(f"\r{up} of {nodes} connected", end="", file=sys.stderr)
    connected_s = time.monotonic() - begun
    before, began = cpu_s(), time.monotonic()
    program = host.start([sys.executable, "-c", AGENTS, str(EVERY_S), str(seconds)], stdout=subprocess.PIPE)
    out, _ = await asyncio.to_thread(program.communicate)
    spent_s, wall_s = cpu_s() - before, time.monotonic() - began
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await asyncio.gather(*(shard.close() for shard in shards))
    service.close()
    return {
        "nodes": nodes,
        "connected_s": round(connected_s, 1),
        "worker_cpu_share": round(spent_s / wall_s, 3),
        "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        **json.loads(out),
    }


def fill(database: Database, host: Host, nodes: int) -> None:
    """Rows of nodes that were brought up, and their folders."""
    offer = asdict(Offer("vm", "r", "", Price(1.0), cpu_slots=1))
    for number in range(nodes):
        job = new_job(database, spec=plain("true"))
        node = intended(database, job.id, "cloud", state=NodeState.READY, handle=f"i-{number}", offer=offer)
        database.write(lambda conn, node=node: reaching.note(conn, node, phase="started", facts={}))  # type: ignore[misc]
        (host.folder / "root/.shunter/nodes" / node.token).mkdir(parents=True)


def open_shards(database: Database, pool: Pool, folder: Path) -> list[Channels]:
    """All of one worker process."""
    host = pool.hosts[0]
    endpoint = SshEndpoint(
        host.address, host_keys=(host.host_key,), identity_file=str(pool.client_key), python=sys.executable
    )
    registry = Registry({"cloud": Instance("cloud", "cloud")}, lambda plugin: lambda instance: Cloud(endpoint))
    room = Room(database, registry, Origin("abcdef", b"s", "", folder / "api-url"), f"file://{folder}/o", ["cloud"])
    return [Channels(room, JobKeys(database, b"s"), shard) for shard in range(SHARDS)]


async def work(shards: Sequence[Channels]) -> None:
    """As a worker's timers do, until it is cancelled."""
    delay_s = 0.0
    while delay_s >= 0.0:
        await asyncio.sleep(delay_s)
        delay_s = max([await shard.work() for shard in shards])


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The service: takes the message and says that it did."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
    await reader.readexactly(length)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    await writer.drain()
    writer.close()


def connected(host: Host) -> int:
    return len(list((host.folder / "root/.shunter/nodes").glob("*/service-url")))


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
