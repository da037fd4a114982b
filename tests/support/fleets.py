"""The processes that play simulated clouds' agents: they outlive whoever started them, so tests end them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def fleet_pids(folder: Path) -> list[int]:
    """Of the clouds below this folder."""
    found = []
    for lock in folder.rglob("*.fleet.lock"):
        with suppress(OSError, ValueError):
            pid = int(lock.read_text())
            if b"shunter_providers.simulated.fleet" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def end_fleets(folder: Path) -> None:
    """Kill them."""
    for pid in fleet_pids(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
