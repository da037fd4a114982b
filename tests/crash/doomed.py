"""`python -m crash.doomed POINT`: a worker process that kills itself at that point of its steps, with SIGKILL.

A point lies before each statement, before each commit, and before and after each call to a provider, within steps.
Settings from the environment, as a worker has them. Ends by itself, with status 0, when no job is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from shunter_providers.contract import Instance, Intent, NodeView
from shunter_providers.instances import make_instances
from shunter_providers.registry import Registry
from shunter_providers.simulated import SimulatedProvider
from shunter_store.installation import deployment
from shunter_store.job import due
from shunter_store.sql.database import Database
from shunter_workers.accounts import Accounts
from shunter_workers.duties.scanner import Scanner
from shunter_workers.owners import owner_name
from shunter_workers.settings import WorkerSettings
from shunter_workers.staff import make_stepper
from sqlalchemy import Engine, event, text

GIVE_UP_S = 60.0
_IN_STEP: ContextVar[bool] = ContextVar("in_step", default=False)


class Countdown:
    """Points that are left."""

    def __init__(self, point: int) -> None:
        self._left = point

    def pass_point(self, *_: object) -> None:
        """The process ends here if this is the one."""
        if not _IN_STEP.get():
            return
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


class Near(Database):
    """Runs transactions in the thread of the loop: a statement knows whose step it belongs to."""

    async def aread(self, fn: Any) -> Any:
        return self.read(fn)

    async def awrite(self, fn: Any) -> Any:
        return self.write(fn)


def counted(countdown: Countdown) -> type[SimulatedProvider]:
    """The real plugin, in a process that may die around each of its calls."""

    class Counted(SimulatedProvider):
        async def create(self, intent: Intent) -> str:
            countdown.pass_point()
            handle = await super().create(intent)
            countdown.pass_point()
            return handle

        async def get(self, handle: str) -> NodeView:
            countdown.pass_point()
            view = await super().get(handle)
            countdown.pass_point()
            return view

        async def list_owned(self, deployment: str) -> Sequence[NodeView]:
            countdown.pass_point()
            views = await super().list_owned(deployment)
            countdown.pass_point()
            return views

        async def terminate(self, handle: str) -> bool:
            countdown.pass_point()
            gone = await super().terminate(handle)
            countdown.pass_point()
            return gone

    return Counted


async def _work(settings: WorkerSettings, countdown: Countdown) -> None:
    database = Near.connect(settings.database_url)
    mark = database.write(deployment.get_or_create).id

    def plugin(name: str) -> Any:
        return counted(countdown)

    instances: dict[str, Instance] = make_instances(settings.providers, settings.data_dir)
    registry = Registry(instances, plugin)
    accounts = Accounts(registry)
    stepper = make_stepper(settings, database, registry, accounts, mark)
    scanners = [Scanner(database, registry, accounts, instance=name, deployment=mark) for name in registry.names]
    give_up_at = time.monotonic() + GIVE_UP_S
    while time.monotonic() < give_up_at and database.read(_lives):
        for claim in database.write(lambda conn: due.claim(conn, owner=owner_name(), limit=1)):
            token = _IN_STEP.set(True)
            await stepper.step(claim)
            _IN_STEP.reset(token)
        for scanner in scanners:
            await scanner.work()
        await asyncio.sleep(0.02)


def _lives(conn: Any) -> bool:
    return conn.execute(text("SELECT 1 FROM job_due LIMIT 1")).scalar() is not None


def main(point: int) -> None:
    """Never returns when the point is reached."""
    countdown = Countdown(point)
    event.listen(Engine, "before_cursor_execute", countdown.pass_point)
    event.listen(Engine, "commit", countdown.pass_point)
    asyncio.run(_work(WorkerSettings(), countdown))


if __name__ == "__main__":
    main(int(sys.argv[1]))
