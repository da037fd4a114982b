"""Keeps a channel to every node that is reached by SSH; each process has the jobs of its shard."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from shunter_planner.values import offer_from_json
from shunter_providers.contract import NodeCondition, ShowsConsole, SshEndpoint
from shunter_providers.registry import Registry
from shunter_providers.ssh.connecting import JobKeys as InjectedKeys
from shunter_schemas.job import load_job
from shunter_schemas.states import NodeState
from shunter_store.job import jobs
from shunter_store.job.jobs import JobRow
from shunter_store.node import ledger, node_calls, reaching
from shunter_store.node.ledger import NodeRow
from shunter_store.node.node_calls import NodeCallRow
from shunter_store.node.reaching import ReachedNode
from shunter_store.sql.database import Database
from shunter_store.storage import bundles
from shunter_store.storage.bundles import BundleRow, object_key
from shunter_store.storage.objects import ObjectStore
from sqlalchemy import Connection

from shunter_workers.assignments import bundles_of
from shunter_workers.channels.bootstrap import Needs
from shunter_workers.channels.channel import NodeChannel
from shunter_workers.channels.keys import JobKeys
from shunter_workers.channels.relay import Relay
from shunter_workers.channels.seeding import Blob, Seeder
from shunter_workers.launching import Origin, launch_file
from shunter_workers.packing import pack_launch

SHARDS: Final = 2
LOOK_EVERY_S: Final = 0.5
ABANDONED_AFTER_S: Final = 30.0
"""Without a look for so long another process has the shard: the channels here are closed."""
CONSOLE_BEFORE_S: Final = 120.0
"""So long before a node is given up its console is read."""
FORGET_KEYS_EVERY_S: Final = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Room:
    """What the channels of a process share with the rest of it."""

    database: Database
    registry: Registry
    origin: Origin
    objects_url: str
    instances: Sequence[str]
    """Those whose nodes are reached by SSH."""


@dataclass(slots=True)
class _Open:
    channel: NodeChannel
    task: asyncio.Task[None]


class Channels:
    """One shard."""

    def __init__(self, room: Room, keys: JobKeys, shard: int) -> None:
        self.relay = Relay(room.origin.service_now)
        self.seeder = Seeder()
        self.public_url = room.origin.service_url
        self._room = room
        self._keys = keys
        self._shard = shard
        self._open: dict[str, _Open] = {}
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._forget_at = 0.0
        self._guard: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    async def work(self) -> float:
        """One look at the ledger."""
        if self._guard is not None:
            self._guard.cancel()
        self._guard = asyncio.get_running_loop().call_later(ABANDONED_AFTER_S, self._abandon)
        rows, calls = await self._room.database.aread(self._read)
        await self._match({row.id: row for row in rows if shard_of(row.job_id) == self._shard})
        for call in calls:
            self._pass_on(call)
        if self._shard == 0 and time.monotonic() > self._forget_at:
            self._forget_at = time.monotonic() + FORGET_KEYS_EVERY_S
            await self._keys.forget()
        return LOOK_EVERY_S

    async def close(self) -> None:
        """Drop every connection; what runs on nodes goes on, and another process connects anew."""
        if self._guard is not None:
            self._guard.cancel()
        tasks = [opened.task for opened in self._open.values()] + list(self._calls.values())
        self._open, self._calls = {}, {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What channels ask for (`channel.Desk`).

    async def endpoint(self, node: NodeRow) -> tuple[NodeCondition, SshEndpoint | None, Mapping[str, str]]:
        """How the node is reached now, as its provider says."""
        assert node.handle is not None
        view = await self._room.registry.get(node.instance).get(node.handle)
        return view.condition, view.ssh, view.addresses

    async def keys(self, job_id: str) -> InjectedKeys | None:
        """What was injected into the job's nodes, if anything was."""
        known = await self._keys.known(job_id)
        return None if known is None else InjectedKeys(known.login.private, known.host.public)

    async def needs(self, node: NodeRow) -> Needs:
        """What the node has to be, and gets."""
        capabilities = self._room.registry.get(node.instance).capabilities
        job, archives = await self._room.database.aread(lambda conn: _job_of(conn, node))
        document = load_job(job.spec) if job is not None else None
        disk_gib = document.resources.disk_gib if document is not None else None
        image = document.environment.image if document is not None else None
        return Needs(
            token=node.token,
            handle=node.handle or "",
            job_id=node.job_id,
            offer=offer_from_json(node.offer),
            slot_kind=node.slot_kind,
            slot_indices=tuple(node.slot_indices),
            disk_gib=float(disk_gib) if isinstance(disk_gib, int | float) else None,
            launch=pack_launch(launch_file(self._room.origin, node, capabilities, image=image, over_ssh=True)),
            blobs=[self._blob(row) for row in archives],
            own_machine=not capabilities.shared_hosts,
        )

    async def console(self, node: NodeRow) -> str | None:
        """What the node wrote at its boot, where it should long be up and its provider tells; None: there is none."""
        provider = self._room.registry.get(node.instance)
        deadline_s = provider.capabilities.readiness_deadline_s
        if not isinstance(provider, ShowsConsole) or node.handle is None or node.created_at is None:
            return None
        late = datetime.now(UTC) - node.created_at > timedelta(
            seconds=deadline_s - min(CONSOLE_BEFORE_S, deadline_s / 2)
        )
        return await provider.console(node.handle) if late else None

    async def note(self, node: NodeRow, phase: str, detail: str, refused: str | None, facts: Mapping[str, Any]) -> None:
        """Write down how far the node is."""

        def write(conn: Connection) -> None:
            reaching.note(conn, node, phase=phase, detail=detail, refused=refused, facts=facts)

        await self._room.database.awrite(write)

    async def answer(self, call: NodeCallRow, answer: Mapping[str, Any] | None, error: str | None) -> None:
        """Tell the service what came of a call."""
        await self._room.database.awrite(lambda conn: node_calls.give(conn, call.id, answer=answer, error=error))

    # The duty itself.

    def _read(self, conn: Connection) -> tuple[list[ReachedNode], list[NodeCallRow]]:
        return reaching.reached_nodes(conn, self._room.instances), node_calls.unanswered(conn)

    async def _match(self, rows: Mapping[str, ReachedNode]) -> None:
        for node_id in [node_id for node_id in self._open if node_id not in rows]:
            opened = self._open.pop(node_id)
            opened.task.cancel()
            await asyncio.gather(opened.task, return_exceptions=True)
        for node_id, row in rows.items():
            if node_id not in self._open:
                await self._begin(node_id)
            opened = self._open[node_id]
            opened.channel.watched.silent_s = row.silent_s
            opened.channel.watched.leaving = row.state is NodeState.RELEASING
        jobs_left = {opened.channel.node.job_id for opened in self._open.values()}
        self.seeder.keep_only(jobs_left)

    async def _begin(self, node_id: str) -> None:
        node, row = await self._room.database.aread(
            lambda conn: (ledger.get(conn, node_id), reaching.get(conn, node_id))
        )
        assert node is not None, "rows of the ledger are never deleted while they live"
        channel = NodeChannel(self, node, was_started=row is not None and row.phase == "started")
        self._open[node_id] = _Open(channel, asyncio.create_task(channel.run()))

    def _pass_on(self, call: NodeCallRow) -> None:
        running = self._calls.get(call.id)
        if call.node_id in self._open and (running is None or running.done()):
            self._calls = {id_: task for id_, task in self._calls.items() if not task.done()}
            self._calls[call.id] = asyncio.create_task(self._open[call.node_id].channel.answer_call(call))

    def _blob(self, row: BundleRow) -> Blob:
        def read(offset: int) -> Iterator[bytes]:
            return ObjectStore(self._room.objects_url).open_range(object_key(row.digest), offset)

        return Blob(row.digest, row.size, read)

    def _abandon(self) -> None:
        """Nobody asked for work: another process has the shard by now."""
        _log.info("the channels of shard %d are left to another process", self._shard)
        self._closing = asyncio.create_task(self.close())


def shard_of(job_id: str) -> int:
    """Nodes of one job are in one process: they hand each other files."""
    return hashlib.sha256(job_id.encode()).digest()[0] % SHARDS


def _job_of(conn: Connection, node: NodeRow) -> tuple[JobRow | None, list[BundleRow]]:
    job = jobs.get(conn, node.job_id)
    if job is None:
        return None, []
    rows = [bundles.get(conn, digest) for digest in bundles_of(load_job(job.spec))]
    return job, [row for row in rows if row is not None]
