"""What a job costs the workers on its way from `queued` to its end: processor time, transactions, statements, steps.

    python benchmarks/control_plane/step_cost.py [--jobs 200] [--profile FILE]

One worker process's parts in this process (claims, steps, the simulated cloud), with what agents would say written
between the phases and not counted. SQLite always, PostgreSQL where SHUNTER_TEST_POSTGRES_URL names a server.
`--profile` leaves a cProfile of the phases on the first database.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from api_load import DOCUMENT, database
from exchange_cost import server_s
from shunter_providers.instances import make_instances
from shunter_providers.registry import Registry
from shunter_schemas.ids import new_id
from shunter_schemas.job import load_job
from shunter_schemas.node_sync import PROTOCOL, NodeStatus, Record, SyncRequest
from shunter_schemas.states import NodeState
from shunter_store import migrate
from shunter_store.installation import deployment
from shunter_store.installation.settings import ProviderSettings
from shunter_store.job import due, jobs, wishes
from shunter_store.node import ledger, sync
from shunter_store.node.ledger import NodeRow
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import clock_of
from shunter_store.tables import outbox as outbox_table
from shunter_workers.accounts import Accounts
from shunter_workers.claiming import Claimer
from shunter_workers.duties.scanner import Scanner
from shunter_workers.settings import WorkerSettings
from shunter_workers.staff import make_stepper
from sqlalchemy import Connection, func, select

_CLOUD: Final[dict[str, Any]] = {
    "nodes": "bare",
    "boot_s": 0.0,
    "types": [{"name": "cpu-2", "usd_per_hour": 0.1, "cpu_slots": 2, "nodes_per_region": 100_000}],
    "regions": [{"name": "eu-sim", "jurisdiction": "DE"}],
}


@dataclass(slots=True)
class Used:
    """So far."""

    mine_s: float
    server_s: float
    transactions: int
    statements: int
    steps: int
    hints: int


class Site:
    """One worker process's parts over one database."""

    def __init__(self, folder: Path, url: str, count: int) -> None:
        self.count = count
        migrate.upgrade(url)
        self.store = Database.connect(url, readers=2)
        providers = {"sim": ProviderSettings(plugin="simulated", settings=_CLOUD)}
        settings = WorkerSettings(data_dir=folder, database_url=url, providers=providers)
        mark = self.store.write(deployment.get_or_create).id
        registry = Registry(make_instances(settings.providers, folder, deployment=mark))
        accounts = Accounts(registry)
        stepper = make_stepper(settings, self.store, registry, accounts, mark)
        self.claimer = Claimer(self.store, stepper.step, owner=stepper.owner, lease_s=30.0)
        self.scanner = Scanner(self.store, registry, accounts, instance="sim", deployment=mark)

    def used(self) -> Used:
        hints = self.store.read(lambda conn: conn.execute(select(func.max(outbox_table.c.id))).scalar())
        return Used(
            time.process_time(),
            server_s(self.store),
            self.store.transactions,
            self.store.statements,
            self.claimer.steps,
            hints or 0,
        )

    async def work(self) -> None:
        """Until nothing is due."""
        await self.claimer.pull()
        while self.claimer.busy or self.store.read(due.count_due):
            await asyncio.sleep(0.01)
            await self.claimer.pull_quietly()

    async def phase(self, name: str, profile: cProfile.Profile | None) -> None:
        """Work, and say what it took for each job."""
        before = self.used()
        if profile is not None:
            profile.enable()
        await self.work()
        if profile is not None:
            profile.disable()
        after = self.used()
        each = [(getattr(after, name) - getattr(before, name)) / self.count for name in Used.__slots__]
        mine, its, transactions, statements, steps, hints = each
        print(
            f"{name:32} worker {1000 * mine:6.1f} ms  database {1000 * its:5.1f} ms  transactions {transactions:5.1f}"
            f"  statements {statements:6.1f}  claims {steps:4.1f}  hints {hints:4.1f}",
            flush=True,
        )

    def live(self) -> list[NodeRow]:
        def read(conn: Connection) -> list[NodeRow]:
            return [node for node in ledger.of_instance(conn, "sim") if node.state is not NodeState.GONE]

        return self.store.read(read)

    def tell(self, records: Callable[[NodeRow], list[tuple[str, dict[str, Any]]]], phase: str) -> None:
        """What every agent says next."""
        for node in self.live():
            told = [
                Record(seq=node.acknowledged + place, at=time.time(), type=type_, generation=1, data=data)
                for place, (type_, data) in enumerate(records(node), 1)
            ]
            status = NodeStatus.model_validate({"phase": phase, "generation": 1})
            asked = SyncRequest(protocol=PROTOCOL, node=node.token, journal_id="j", status=status, records=told)
            self.store.write(lambda conn, node=node, asked=asked: sync.ingest(conn, node, asked, now=clock_of(conn)))  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--profile", type=Path)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start; {options.jobs} jobs, for each of them")
    profile = cProfile.Profile() if options.profile else None
    for kind in ("sqlite", "postgresql"):
        with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder, ExitStack() as stack:
            url = stack.enter_context(database(kind, Path(folder)))
            if url is not None:
                print(kind)
                asyncio.run(live(Site(Path(folder), url, options.jobs), profile))
    if profile is not None:
        profile.dump_stats(options.profile)


async def live(site: Site, profile: cProfile.Profile | None) -> None:
    """All jobs together, phase by phase."""
    ids = site.store.write(lambda conn: accept(conn, site.count))
    await site.phase("accepted -> its node is made", profile)
    site.tell(lambda _: [("boot", _BOOT)], "idle")
    await site.phase("the agent is up -> orders", profile)
    site.tell(lambda _: [("rank_up", {"rank": rank, "pid": 7}) for rank in (0, 1)], "running")
    await site.phase("ranks are up -> running", profile)
    for job_id in ids:
        site.store.write(lambda conn, job_id=job_id: wishes.request_cancel(conn, job_id, by="a benchmark"))  # type: ignore[misc]
    await site.phase("cancelled -> told to stop", profile)
    site.tell(lambda _: [("stopped", {"reason": "cancelled_by_user"}), ("drained", {})], "drained")
    await site.phase("drained -> its end is asked for", profile)
    for _ in range(2):
        before = site.used()
        await site.scanner.work()
        after = site.used()
        print(f"{'a scan':32} worker {1e6 * (after.mine_s - before.mine_s) / site.count:6.0f} us a node")
    await site.phase("not listed -> released", profile)
    await site.claimer.close(5.0)
    site.store.close()


def accept(conn: Connection, count: int) -> list[str]:
    """So many jobs that are due."""
    document = load_job(json.loads(DOCUMENT)).model_dump(mode="json")
    at, text = jobs.now(conn), DOCUMENT.decode()
    new = [jobs.NewJob(new_id("job"), "default", "a benchmark", "tiny", {}, 2, document, text) for _ in range(count)]
    jobs.insert_all(conn, new, at)
    return [job.id for job in new]


_BOOT: Final = {
    "boot_id": "b",
    "hostname": "host",
    "agent_version": "1",
    "python": "3.11",
    "cpus": 2,
    "memory_gib": 4.0,
}

if __name__ == "__main__":
    main()
