"""Worker processes of the model: the real steps, scanner and reaper over the model's cloud."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from shunter_providers.contract import Instance
from shunter_providers.registry import Registry
from shunter_store.job import due
from shunter_store.job.due import Claim
from shunter_workers.accounts import Accounts
from shunter_workers.acting import Actor
from shunter_workers.applying import Applier
from shunter_workers.clock_watch import ClockWatch
from shunter_workers.duties.scanner import Scanner
from shunter_workers.duties.sweep import Sweep
from shunter_workers.hints import Hints
from shunter_workers.launching import Origin
from shunter_workers.observing import Observer
from shunter_workers.offers import Offers
from shunter_workers.stepping import IN_A_ROW, Stepper
from sqlalchemy import Connection

from model.cloud import PLUGINS
from model.processes import Process

if TYPE_CHECKING:
    from model.world import World

LEASE_S: Final = 30.0
DEPLOYMENT: Final = "abcdef"
SECRET: Final = b"secret"


class _NobodyListens:
    """Every hint is lost."""

    async def publish(self, count: int) -> bool:
        return True


class Worker:
    """One process that steps jobs and scans. Killed, it comes back and knows nothing."""

    def __init__(self, world: World, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._world = world
        self.name = name
        self.process = Process(loop, name)
        self.claimed: str | None = None
        """The job that it claimed last."""
        self._hire()

    def restart(self) -> None:
        """It is killed wherever it stands, and another one takes its place."""
        self.process.kill()
        self._hire()

    def begin_step(self) -> None:
        """Claim a job that is due, and step it."""
        if not self.process.busy:
            self.process.begin(self._step())

    def begin_scan(self, instance: str) -> None:
        """One look at an instance."""
        if not self.process.busy:
            self.process.begin(self._scanners[instance].work())

    def begin_sweep(self) -> None:
        """Look for nodes that fell silent, and at the clock."""
        if not self.process.busy:
            self.process.begin(self._look_around())

    def _hire(self) -> None:
        world = self._world
        database, cloud = world.database, world.cloud
        registry = Registry(
            {name: Instance(name, name) for name in world.instances}, lambda plugin: partial(PLUGINS[plugin], cloud)
        )
        accounts = Accounts(registry)
        origin = Origin(DEPLOYMENT, SECRET, "http://service", Path("/nowhere"))
        self._stepper = Stepper(
            database=database,
            observer=Observer(database, Offers(registry, accounts, {}), unreachable_after_s=60.0),
            actor=Actor(registry, accounts, origin),
            applier=Applier(DEPLOYMENT, SECRET),
            lease_s=LEASE_S,
            owner=self.name,
            in_a_row=IN_A_ROW,
        )
        self._scanners = {
            name: Scanner(database, registry, accounts, instance=name, deployment=DEPLOYMENT)
            for name in world.instances
        }

        self._clock_watch = ClockWatch(database)
        self._sweep = Sweep(database, cast(Hints, _NobodyListens()), lease_s=LEASE_S, unreachable_after_s=60.0)

    async def _look_around(self) -> None:
        await self._clock_watch.work()
        await self._sweep.work()

    async def _step(self) -> None:
        for claim in await self._world.database.awrite(self._claim):
            await self._stepper.step(claim)

    def _claim(self, conn: Connection) -> list[Claim]:
        claims = due.claim(conn, owner=self.name, limit=1, lease_s=LEASE_S)
        self._world.database.on_commit.append(lambda: self._note(claims))
        return claims

    def _note(self, claims: list[Claim]) -> None:
        self._world.history.note_claims(claims)
        self.claimed = next((claim.job_id for claim in claims), None)
