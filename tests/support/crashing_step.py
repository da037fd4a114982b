"""`python -m support.crashing_step POINT`: steps due jobs until it dies at that point, as if killed there.

Settings from the environment, as a worker has them. Exits 9 at the point, 1 when it was never reached.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from shunter_providers.contract import Intent
from shunter_providers.instances import make_instances
from shunter_providers.local import LocalProvider
from shunter_providers.registry import Registry
from shunter_store.installation import deployment
from shunter_store.job import due
from shunter_store.job.due import Claim
from shunter_store.job.jobs import JobRow
from shunter_store.sql.database import Database
from shunter_workers.accounts import Accounts
from shunter_workers.applying import Applier
from shunter_workers.decisions import RecordHandle, Settle
from shunter_workers.owners import owner_name
from shunter_workers.settings import WorkerSettings
from shunter_workers.staff import make_stepper
from shunter_workers.view import View
from sqlalchemy import Connection

GIVE_UP_S = 20.0


class Doomed(LocalProvider):
    """The real plugin, in a process that dies around one of its calls."""

    point = ""

    async def create(self, intent: Intent) -> str:
        _die_at("before_create", self.point)
        handle = await super().create(intent)
        _die_at("after_create", self.point)
        return handle

    async def terminate(self, handle: str) -> bool:
        _die_at("before_terminate", self.point)
        gone = await super().terminate(handle)
        _die_at("after_terminate", self.point)
        return gone


class DoomedApplier(Applier):
    """Dies between the handle, which is kept at once, and the rest of the step."""

    point = ""

    def apply(self, conn: Connection, claim: Claim, view: View, settled: Settle) -> JobRow:
        if any(isinstance(write, RecordHandle) for write in settled.writes):
            _die_at("after_handle", self.point)
        return super().apply(conn, claim, view, settled)


def _die_at(here: str, point: str) -> None:
    if here == point:
        os._exit(9)


async def _step_until_death(settings: WorkerSettings) -> None:
    database = Database.connect(settings.database_url)
    mark = database.write(deployment.get_or_create).id

    def plugin(_: str) -> type[Doomed]:
        return Doomed

    registry = Registry(make_instances(settings.providers, settings.data_dir), plugin)
    stepper = make_stepper(settings, database, registry, Accounts(registry), mark)
    stepper.applier.__class__ = DoomedApplier
    give_up_at = time.monotonic() + GIVE_UP_S
    while time.monotonic() < give_up_at:
        for claim in database.write(lambda conn: due.claim(conn, owner=owner_name(), limit=1)):
            await stepper.step(claim)
        await asyncio.sleep(0.02)


def main(point: str) -> int:
    """Never returns when the point is reached."""
    Doomed.point = DoomedApplier.point = point
    asyncio.run(_step_until_death(WorkerSettings()))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
