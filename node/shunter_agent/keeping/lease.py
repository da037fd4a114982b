"""The dead-man lease: until when this node may go on without hearing from its service."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from shunter_agent.files import read_json, write_json
from shunter_agent.keeping.clock import boot_id, boottime_s

_FIELDS = {"expires": "expires_in_s", "stop": "stop_in_s"}


class Lease:
    """Deadlines on the boot clock, kept on the disk so that a restart of the agent does not lengthen them."""

    def __init__(self, path: str, first: dict[str, Any]) -> None:
        """Take up the lease that was kept, else begin with the one of the launch file."""
        self._path = path
        self._deadlines: dict[str, float | None] = dict.fromkeys(_FIELDS)
        kept = read_json(path)
        if kept is None:
            self.renew(first, boottime_s())
        else:
            self._deadlines.update(_restored(kept))

    def renew(self, granted: dict[str, Any], asked_at: float) -> None:
        """Count the granted seconds from the moment the question was sent: never longer than the service counts."""
        deadlines = {
            name: None if granted.get(field) is None else asked_at + float(granted[field])
            for name, field in _FIELDS.items()
        }
        changed = deadlines != self._deadlines
        self._deadlines = deadlines
        if changed:
            self._keep()

    def expired(self) -> bool:
        """The service has been silent for too long."""
        return self._passed("expires")

    def stop_due(self) -> bool:
        """The budget or the duration is used up."""
        return self._passed("stop")

    def next_s(self) -> float | None:
        """Seconds until the next deadline that has not passed."""
        now = boottime_s()
        ahead = [at - now for at in self._deadlines.values() if at is not None and at > now]
        return min(ahead) if ahead else None

    def _passed(self, name: str) -> bool:
        deadline = self._deadlines[name]
        return deadline is not None and boottime_s() >= deadline

    def _keep(self) -> None:
        offset = time.time() - boottime_s()
        wall = {name: None if at is None else at + offset for name, at in self._deadlines.items()}
        with suppress(OSError):  # the deadlines in memory hold; a full disk must not end a training
            write_json(self._path, {"boot_id": boot_id(), "boot": self._deadlines, "wall": wall}, durable=False)


def _restored(kept: dict[str, Any]) -> dict[str, float | None]:
    """After a reboot the boot clock began anew, and the wall clock is the best that is left."""
    if kept.get("boot_id") == boot_id():
        return dict(kept.get("boot", {}))
    offset = boottime_s() - time.time()
    return {name: None if at is None else at + offset for name, at in kept.get("wall", {}).items()}
