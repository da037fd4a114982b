"""Starts a cloud's fleet where none runs.

There is no supervisor: every call to the cloud looks, as a scanner calls every second or two.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shunter_providers.simulated.settings import SimulatedSettings

_LOOK_EVERY_S: Final = 1.0
_NOT_FOR_NODES: Final = ("SHUNTER_", "CELERY", "FORKED_BY_MULTIPROCESSING", "_MP_")


@dataclass(frozen=True, slots=True)
class Files:
    """What a cloud's fleet has on the disk."""

    folder: Path
    cloud: str

    @property
    def books(self) -> Path:
        """The cloud's own."""
        return self.folder / f"{self.cloud}.sqlite"

    @property
    def lock(self) -> Path:
        """Held by the process that plays; its pid stands in it."""
        return self.folder / f"{self.cloud}.fleet.lock"

    @property
    def settings(self) -> Path:
        """How the next process shall play."""
        return self.folder / f"{self.cloud}.fleet.json"

    @property
    def memory(self) -> Path:
        """What it goes on with after it was killed."""
        return self.folder / f"{self.cloud}.fleet.sqlite"

    @property
    def log(self) -> Path:
        """What it complains about."""
        return self.folder / f"{self.cloud}.fleet.log"


class Keeper:
    """One per provider instance."""

    def __init__(self, folder: Path, cloud: str, settings: SimulatedSettings) -> None:
        self._files = Files(folder, cloud)
        self._told = json.dumps({"fleet": settings.fleet.model_dump(), "notice_s": settings.spot_notice_s})
        self._looked_at = 0.0

    async def tend(self) -> None:
        """See to it that somebody plays."""
        if time.monotonic() < self._looked_at + _LOOK_EVERY_S:
            return
        self._looked_at = time.monotonic()
        if await asyncio.to_thread(self._nobody_plays):
            await self._start()

    def _nobody_plays(self) -> bool:
        self._files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._files.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            self._files.settings.write_text(self._told)
            return True
        finally:
            os.close(descriptor)

    async def _start(self) -> None:
        """Detached: it outlives the service's processes, as nodes do. A second one finds the lock taken, and ends."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_FOR_NODES)}
        argv = (sys.executable, "-P", "-m", "shunter_providers.simulated.fleet")
        with self._files.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *argv,
                str(self._files.folder),
                self._files.cloud,
                cwd=self._files.folder,
                env=kept,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        await process.wait()  # it detaches itself: a child would be ended with the event loop of its parent
