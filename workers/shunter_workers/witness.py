"""Remembers, outside of the database, how far it had come: a database that went back in time was restored from a copy.

The memory is a file of the data directory, so that it outlives the process, and the restore.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from shunter_store.installation import deployment
from shunter_store.installation.deployment import Deployment
from shunter_store.sql.database import Database

EVERY_S: Final = 15.0


class _Seen(NamedTuple):
    deployment: str
    epoch: int


class Witness:
    """One per process; those of one machine share the file."""

    def __init__(self, database: Database, file: Path) -> None:
        self._database = database
        self._file = file
        self._seen: _Seen | None = None

    async def look(self) -> Deployment:
        """The deployment as it is now. Holds its reaping when the database is older than it was seen to be."""
        found = await self._database.aread(deployment.find)
        if found is None:
            found = await self._database.awrite(deployment.get_or_create)
        seen = self._newest(found.id)
        if seen is not None and seen.epoch > found.epoch:
            found = await self._database.awrite(lambda conn: deployment.witness(conn, *seen))
        self._keep(_Seen(found.id, found.epoch))
        return found

    async def advance(self) -> float:
        """The duty of one process: one epoch more. Never before a look: a restore would be covered up."""
        await self.look()
        await self._database.awrite(deployment.advance)
        await self.look()
        return EVERY_S

    def _newest(self, deployment_id: str) -> _Seen | None:
        """Of what this process and this machine saw of this deployment."""
        known = [one for one in (self._seen, _read(self._file)) if one is not None and one.deployment == deployment_id]
        return max(known, key=lambda one: one.epoch, default=None)

    def _keep(self, seen: _Seen) -> None:
        written = _read(self._file)
        self._seen = seen
        if written == seen or (written and written.deployment == seen.deployment and written.epoch > seen.epoch):
            return
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        with suppress(OSError):  # a full disk: what this process remembers serves until there is room
            draft.write_text(json.dumps(seen._asdict()))
            draft.replace(self._file)


def _read(file: Path) -> _Seen | None:
    """What the file says; a file that cannot be read says nothing."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        found = json.loads(file.read_text())
        return _Seen(str(found["deployment"]), int(found["epoch"]))
    return None
