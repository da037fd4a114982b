"""Machines that a cloud made, and were given the job's own keys: brought up by the core, one connection each."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
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
from shunter_store.node import reaching
from shunter_store.node.ledger import NodeRow
from shunter_store.node.reaching import BootstrapRow
from shunter_store.sql.database import Database
from shunter_workers.channels import channel
from shunter_workers.channels.duty import Channels, Room, shard_of
from shunter_workers.channels.keys import JobKeys, KeysOfJob
from shunter_workers.launching import Origin
from support.control_plane import plain
from support.databases import fresh_sqlite, sqlite_template
from support.hosts import Host, Pool, make_pool
from support.hosts.sshd import HOST_KEY
from support.node_rows import intended
from support.store_rows import new_job

__all__ = ["sqlite_template"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECRET = b"the installation's secret"


@dataclass
class Cloud:
    """Makes no machines: shows one that a test made."""

    endpoint: SshEndpoint | None
    capabilities: ClassVar[Capabilities] = Capabilities(bootstrap="ssh")
    condition: NodeCondition = NodeCondition.RUNNING
    asked: list[str] = field(default_factory=list)

    async def whoami(self) -> Identity:
        return Identity("me")

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        return []

    async def create(self, intent: Intent) -> str:
        raise AssertionError("a channel makes no machine")

    async def get(self, handle: str) -> NodeView:
        self.asked.append(handle)
        return NodeView(handle, None, self.condition, ssh=self.endpoint)

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        return []

    async def terminate(self, handle: str) -> bool:
        return True

    async def close(self) -> None:
        """Nothing is held."""


@dataclass
class Site:
    """A database with one node that is booting, and the channels of its shard."""

    database: Database
    node: NodeRow
    cloud: Cloud
    keys: KeysOfJob
    channels: Channels

    def bootstrap(self) -> BootstrapRow | None:
        return self.database.read(lambda conn: reaching.get(conn, self.node.id))

    async def work_until(self, phase: str, timeout_s: float = 60.0) -> BootstrapRow:
        async with asyncio.timeout(timeout_s):
            while True:
                await asyncio.sleep(await self.channels.work() / 2)
                row = self.bootstrap()
                if row is not None and row.phase == phase:
                    return row


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with make_pool(tmp_path_factory.mktemp("pool"), 1) as made:
        yield made


@pytest.fixture
def host(pool: Pool) -> Host:
    """As it was when it was made, but for the keys that a test gives it."""
    pool.reset()
    shutil.rmtree(pool.hosts[0].folder / "root/.shunter", ignore_errors=True)
    return pool.hosts[0]


@pytest.fixture
def database(sqlite_template: Path, tmp_path: Path) -> Iterator[Database]:
    opened = Database.connect(fresh_sqlite(sqlite_template, tmp_path))
    yield opened
    opened.close()


@asynccontextmanager
async def site(database: Database, tmp_path: Path, host: Host, **offered: Any) -> AsyncIterator[Site]:
    job = new_job(database, spec=plain("true"))
    offer = Offer("vm", "r", "", Price(1.0), cpu_slots=1, **offered)
    node = intended(database, job.id, "cloud", state=NodeState.BOOTING, handle="i-1", offer=asdict(offer))
    cloud = Cloud(SshEndpoint(host.address, python=sys.executable))
    registry = Registry({"cloud": Instance("cloud", "cloud")}, lambda plugin: lambda instance: cloud)
    keys = JobKeys(database, SECRET)
    origin = Origin("abcdef", SECRET, "", tmp_path / "api-url")
    room = Room(database, registry, origin, f"file://{tmp_path / 'objects'}", ["cloud"])
    channels = Channels(room, keys, shard_of(job.id))
    try:
        yield Site(database, node, cloud, await keys.of(job.id), channels)
    finally:
        await channels.close()


def inject(host: Host, keys: KeysOfJob) -> None:
    """What cloud-init does with the intent's keys."""
    host.key_file.write_text(keys.host.private)
    host.key_file.chmod(0o600)
    host.key_file.with_name(f"{HOST_KEY}.pub").write_text(keys.host.public + "\n")
    host.authorize(keys.login.public)
    host.restart_sshd()


async def test_a_machine_with_the_job_s_own_keys_is_brought_up(database: Database, tmp_path: Path, host: Host) -> None:
    async with site(database, tmp_path, host) as made:
        inject(host, made.keys)

        row = await made.work_until("started")

        node = host.folder / "root/.shunter/nodes" / made.node.token
        assert row.refused is None
        assert row.facts["way"] == "relay"
        assert (node / "agent.json").exists()
        assert (node / "service-url").read_text().startswith("http://127.0.0.1:")
        everything = b"".join(path.read_bytes() for path in (host.folder / "root").rglob("*") if path.is_file())
        assert made.keys.login.private.splitlines()[2].encode() not in everything
        assert SECRET not in everything


async def test_ssh_that_comes_late_is_waited_for(database: Database, tmp_path: Path, host: Host) -> None:
    async with site(database, tmp_path, host) as made:
        inject(host, made.keys)
        endpoint, made.cloud.endpoint = made.cloud.endpoint, None
        await made.work_until("waiting")
        host.stop_sshd()
        made.cloud.endpoint = endpoint
        await asyncio.sleep(1)
        before = made.bootstrap()
        host.start_sshd()

        row = await made.work_until("started")

        assert before is not None
        assert before.phase == "waiting"
        assert row.refused is None


async def test_a_machine_whose_first_script_brings_the_keys_is_waited_for_and_told_nothing_before(
    database: Database, tmp_path: Path, host: Host
) -> None:
    async with site(database, tmp_path, host) as made:
        before = await made.work_until("waiting")
        while "another key" not in before.detail:
            before = await made.work_until("waiting")
        inject(host, made.keys)

        row = await made.work_until("started")

        assert before.refused is None
        assert row.refused is None


async def test_a_machine_that_goes_on_to_show_another_host_key_is_refused(
    database: Database, tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "SETTLES_WITHIN_S", 0.1)
    async with site(database, tmp_path, host) as made:
        inject(host, made.keys)
        host.change_host_key()

        row = await made.work_until("refused")

        assert "another key than the one that is pinned" in (row.refused or "")
        assert not (host.folder / "root/.shunter").exists()
        told = database.read(lambda conn: reaching.refusals_of(conn, made.node.job_id))
        assert told == {made.node.id: row.refused}


async def test_a_machine_without_the_gpus_that_were_offered_is_refused(
    database: Database, tmp_path: Path, host: Host
) -> None:
    async with site(database, tmp_path, host, gpus=8, gpu_model="H100") as made:
        inject(host, made.keys)

        row = await made.work_until("refused")

        assert row.refused == "8 GPUs were offered, nvidia-smi shows 0"
        assert row.facts == {}


async def test_another_process_finds_the_agent_alive_and_starts_none(
    database: Database, tmp_path: Path, host: Host
) -> None:
    async with site(database, tmp_path, host) as made:
        inject(host, made.keys)
        await made.work_until("started")
        node = host.folder / "root/.shunter/nodes" / made.node.token
        agent, url = (node / "agent.json").read_text(), (node / "service-url").read_text()
        await made.channels.close()

        for _ in range(100):
            await asyncio.sleep(await made.channels.work() / 2)
            if (node / "service-url").read_text() != url:
                break

        assert (node / "service-url").read_text() != url
        assert (node / "agent.json").read_text() == agent


async def test_an_agent_that_died_on_a_machine_of_its_own_costs_the_machine(
    database: Database, tmp_path: Path, host: Host
) -> None:
    async with site(database, tmp_path, host) as made:
        inject(host, made.keys)
        await made.work_until("started")
        await made.channels.close()
        kill_agents(host)

        row = await made.work_until("refused")

        assert row.refused == "its agent has ended"


def kill_agents(host: Host) -> None:
    for pid in host.processes():
        with suppress(FileNotFoundError, ProcessLookupError):  # others end meanwhile
            if b"agent.pyz" in Path(f"/proc/{pid}/cmdline").read_bytes():
                host.run("kill", "-9", namespace_pid(pid))


def namespace_pid(pid: int) -> str:
    """The pid that the host itself knows."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[-1] for line in lines if line.startswith("NSpid:"))
