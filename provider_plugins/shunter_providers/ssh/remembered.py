"""Which leases this installation took, for the time that their host does not answer: one empty file each."""

from __future__ import annotations

import re
from pathlib import Path

_HANDLE = re.compile(r"[a-z][a-z0-9-]{0,39}@[a-z0-9][a-z0-9-]{0,39}")


class Remembered:
    """The files of one instance, below the data folder that all workers share."""

    def __init__(self, data_dir: str, instance: str) -> None:
        self._folder = Path(data_dir) / "ssh-leases" / instance

    def add(self, handle: str) -> None:
        """Before the lease is taken."""
        if _HANDLE.fullmatch(handle):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._folder / handle).touch(mode=0o600)

    def forget(self, handle: str) -> None:
        """After the host itself said that there is none."""
        if _HANDLE.fullmatch(handle):
            (self._folder / handle).unlink(missing_ok=True)

    def on_host(self, name: str, deployment: str) -> list[str]:
        """Handles of the leases that may be on a host."""
        return sorted(path.name for path in self._folder.glob(f"shn-{deployment}-*@{name}"))
