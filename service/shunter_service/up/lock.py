"""One supervisor a data directory: `flock` on `up.lock`, taken before any child is started."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any


class AlreadyUp(Exception):
    """Another supervisor holds the data directory."""

    def __init__(self, holder: dict[str, Any], data_dir: Path) -> None:
        who = f"process {holder['pid']}" if "pid" in holder else "another process"
        where = f" and serves it at {holder['url']}" if holder.get("url") else ""
        super().__init__(
            f"`shunter up` already runs on {data_dir}: {who} holds it{where}. "
            "Stop that one first, or give another --data-dir."
        )


class Lock:
    """Held until the process ends: the kernel lets go of it, so that a kill -9 leaves nothing behind."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            AlreadyUp: it is held by another process.
        """
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read(self._fd)
            os.close(self._fd)
            raise AlreadyUp(holder, path.parent) from None
        self.describe()

    def release(self) -> None:
        """Let go before the process ends."""
        os.close(self._fd)

    def describe(self, url: str | None = None) -> None:
        """Write down who holds the lock, for the message that a second supervisor prints."""
        text = json.dumps({"pid": os.getpid(), "url": url}).encode()
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text, 0)


def _read(fd: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(fd, 4096, 0))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
