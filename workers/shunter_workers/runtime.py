"""Everything that lives in one worker process: a loop thread, a database, the providers, timers and duties.

Made after the fork: connections, threads and event loops do not survive one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from shunter_store.installation import activity, deployment
from shunter_store.sql.database import Database

from shunter_workers.settings import WorkerSettings
from shunter_workers.staff import Staff, hire

if TYPE_CHECKING:
    from celery import Celery

STOP_WITHIN_S: Final = 8.0
BEGIN_WITHIN_S: Final = 2.0
"""So long Celery is kept waiting for a child that begins; after 4 s it would take it for stuck, and kill it."""
FIRST_RETRY_S: Final = 0.5
LONGEST_RETRY_S: Final = 10.0

_log = logging.getLogger(__name__)


class Runtime:
    """Start it once after the fork, stop it once before the exit."""

    def __init__(self, settings: WorkerSettings, app: Celery) -> None:
        self._settings = settings
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="shunter-loop", daemon=True)
        self._staff: Staff | None = None
        self._beginning: Future[None] | None = None
        self._alive = settings.run_dir / f"alive-{os.getpid()}"

    def start(self) -> None:
        """Returns when the process can work, or soon: a database that is away or a disk that is full is waited for.

        Celery would go on with a child whose beginning failed, and that child would never do anything.
        """
        self._thread.start()
        self._beginning = self._call(self._begin_at_last())
        with suppress(TimeoutError):
            self._beginning.result(timeout=BEGIN_WITHIN_S)

    def hint(self) -> None:
        """Claim what is due; the loop does it while the caller goes on."""
        if self._staff is not None:
            self._staff.hints_taken += 1
            self._call(self._staff.claimer.pull_quietly())

    def stop(self) -> None:
        """Finish the steps that run and give every lease back."""
        if self._beginning is not None:
            self._beginning.cancel()
        try:
            self._call(self._end()).result(timeout=STOP_WITHIN_S + 2.0)
        except Exception:
            _log.exception("did not stop in good order; leases run out by themselves")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=2.0)
        activity.forget(self._settings.run_dir)
        with suppress(OSError):
            self._alive.unlink(missing_ok=True)

    def _call(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _begin_at_last(self) -> None:
        pause_s = FIRST_RETRY_S
        while self._staff is None:
            try:
                self._staff = await self._begin()
            except Exception:
                _log.exception("this process cannot begin yet")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_RETRY_S)

    async def _begin(self) -> Staff:
        database = Database.connect(self._settings.database_url, readers=2)
        try:
            mark = (await database.awrite(deployment.get_or_create)).id
            self._settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            staff = hire(self._settings, self._app, database, mark)
        except BaseException:
            await asyncio.to_thread(database.close)
            raise
        staff.begin(self._alive)
        return staff

    async def _end(self) -> None:
        if self._staff is not None:
            await self._staff.end(STOP_WITHIN_S)
