"""Puts the parts of one worker process together, and runs its timers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shunter_providers.instances import make_instances
from shunter_providers.registry import Registry
from shunter_store.accounts.paces import StorePacer
from shunter_store.installation import activity
from shunter_store.report.pairs import Past
from shunter_store.sql.database import Database
from shunter_store.storage.objects import ObjectStore

from shunter_workers.accounts import Accounts
from shunter_workers.acting import Actor
from shunter_workers.applying import Applier
from shunter_workers.channels.wiring import channel_duties, keys_for
from shunter_workers.claiming import Claimer
from shunter_workers.clock_watch import EVERY_S as LOOK_AT_CLOCK_EVERY_S
from shunter_workers.clock_watch import ClockWatch
from shunter_workers.duties.collector import Collector
from shunter_workers.duties.forecaster import Forecaster
from shunter_workers.duties.forgetter import Forgetter
from shunter_workers.duties.pruner import Pruner
from shunter_workers.duties.relay import Relay
from shunter_workers.duties.scanner import Scanner
from shunter_workers.duties.snapshot import Snapshot
from shunter_workers.duties.sweep import Sweep
from shunter_workers.hints import Hints
from shunter_workers.launching import Origin
from shunter_workers.observing import Observer
from shunter_workers.offers import Offers
from shunter_workers.owners import owner_name
from shunter_workers.settings import WorkerSettings, signing_secret
from shunter_workers.singletons import Duty, Singleton
from shunter_workers.stepping import IN_A_ROW, Stepper
from shunter_workers.undertaker import Undertaker
from shunter_workers.witness import EVERY_S as WITNESS_EVERY_S
from shunter_workers.witness import Witness

if TYPE_CHECKING:
    from celery import Celery

CLAIM_EVERY_S: Final = 1.0
BURY_EVERY_S: Final = 2.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Staff:
    """The parts that have a life of their own."""

    database: Database
    registry: Registry
    claimer: Claimer
    hints: Hints
    undertaker: Undertaker
    singletons: Sequence[Singleton]
    scanners: Sequence[Scanner] = ()
    witness: Witness | None = None
    hints_taken: int = 0
    """Messages that this process was woken by."""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def begin(self, alive: Path) -> None:
        """Start timers and duties in the running loop."""
        self._tasks = [asyncio.create_task(self._claim_by_timer(alive)), asyncio.create_task(self._bury_the_dead())]
        self._tasks += [asyncio.create_task(singleton.run()) for singleton in self.singletons]
        self._tasks.append(asyncio.create_task(self._watch_the_clock(ClockWatch(self.database))))
        self._tasks.append(asyncio.create_task(self._tell_activity(alive.parent)))
        if self.witness is not None:
            self._tasks.append(asyncio.create_task(self._bear_witness(self.witness)))

    async def end(self, within_s: float) -> None:
        """Stop them, finish the steps that run, and let everything go."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.claimer.close(within_s)
        for singleton in self.singletons:
            await singleton.release()
        self.hints.close()
        await self.registry.close()
        await asyncio.to_thread(self.database.close)

    async def _bear_witness(self, witness: Witness) -> None:
        while True:
            try:
                await witness.look()
            except Exception:
                _log.exception("cannot tell whether the database went back in time")
            await asyncio.sleep(WITNESS_EVERY_S)

    async def _watch_the_clock(self, watch: ClockWatch) -> None:
        while True:
            try:
                await watch.work()
            except Exception:
                _log.exception("cannot tell whether the database's clock was set")
            await asyncio.sleep(LOOK_AT_CLOCK_EVERY_S)

    async def _bury_the_dead(self) -> None:
        while True:
            try:
                await self.undertaker.work()
            except Exception:
                _log.exception("cannot look for killed processes")
            await asyncio.sleep(BURY_EVERY_S)

    async def _tell_activity(self, run_dir: Path) -> None:
        while True:
            counts = {
                "statements": self.database.statements,
                "transactions": self.database.transactions,
                "steps": self.claimer.steps,
                "hints_sent": self.hints.sent,
                "hints_taken": self.hints_taken,
                "scans": sum(scanner.scans for scanner in self.scanners),
            }
            await asyncio.to_thread(activity.write, run_dir, "worker", counts)
            await asyncio.sleep(activity.EVERY_S)

    async def _claim_by_timer(self, alive: Path) -> None:
        """Hints make it quick; this alone would do. The file shows that the process gets something done."""
        while True:
            try:
                await self.claimer.pull_if_due()
                await asyncio.to_thread(alive.touch)
            except Exception:
                _log.exception("due jobs cannot be claimed")
            await asyncio.sleep(CLAIM_EVERY_S)


def hire(settings: WorkerSettings, app: Celery, database: Database, deployment: str) -> Staff:
    """Everything that a worker process needs."""
    owner, timing = owner_name(), settings.timing
    registry = Registry(
        make_instances(
            settings.providers,
            settings.data_dir,
            environment=os.environ,
            pacer=StorePacer(database),
            deployment=deployment,
        )
    )
    accounts = Accounts(registry)
    stepper = make_stepper(settings, database, registry, accounts, deployment)
    claimer = Claimer(database, stepper.step, owner=owner, lease_s=timing.step_lease_s)
    hints = Hints(app, most=2 * settings.worker_children)
    sweep = Sweep(database, hints, lease_s=timing.step_lease_s, unreachable_after_s=timing.unreachable_after_s)
    duties = [
        Duty("relay", Relay(database, hints, claimer).work),
        Duty("sweep", sweep.work),
        Duty("pruner", Pruner(database).work),
        Duty("collector", Collector(database, settings.objects_url).work),
        Duty("forgetter", Forgetter(database).work),
        Duty("snapshot", Snapshot(database, registry).work),
        Duty("forecaster", Forecaster(database).work),
    ]
    witness = Witness(database, settings.epoch_file)
    duties.append(Duty("epoch", witness.advance))
    scanners = [
        Scanner(
            database,
            registry,
            accounts,
            instance=name,
            deployment=deployment,
            witness=witness,
            reaping=settings.reaping,
        )
        for name in registry.names
    ]
    duties += [Duty(f"scan:{scanner.instance}", scanner.work) for scanner in scanners]
    duties += channel_duties(registry, database, make_origin(settings, deployment), settings.objects_url)
    singletons = [Singleton(database, duty, owner=owner, ttl_s=timing.singleton_lease_s) for duty in duties]
    return Staff(database, registry, claimer, hints, Undertaker(database), singletons, scanners, witness)


def make_origin(settings: WorkerSettings, deployment: str) -> Origin:
    """Where nodes come from."""
    return Origin(deployment, signing_secret(settings.data_dir), settings.public_url, settings.api_url_file)


def make_stepper(
    settings: WorkerSettings, database: Database, registry: Registry, accounts: Accounts, deployment: str
) -> Stepper:
    """What steps jobs."""
    origin = make_origin(settings, deployment)
    offers = Offers(registry, accounts, {name: configured.hold for name, configured in settings.providers.items()})
    return Stepper(
        database=database,
        observer=Observer(
            database,
            offers,
            unreachable_after_s=settings.timing.unreachable_after_s,
            stop_grace_s=settings.timing.stop_grace_s,
            objects=ObjectStore(settings.objects_url),
            past=Past(database, wanted=settings.correct_predictions),
            price_tolerance=settings.price_tolerance,
        ),
        actor=Actor(registry, accounts, origin, keys_for(registry, database, origin.secret)),
        applier=Applier(deployment, origin.secret),
        lease_s=settings.timing.step_lease_s,
        owner=owner_name(),
        in_a_row=IN_A_ROW,
    )
