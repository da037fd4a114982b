"""Names of lease holders that show whether they still live: boot, process namespace, pid and start time.

A holder that was killed would block its leases until they end; on its own machine everybody can see that it is dead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from shunter_providers.machine.processes import current_boot_id


def owner_name() -> str:
    """This process's name as a lease holder."""
    pid = os.getpid()
    return f"{_realm()}/{pid}/{_start_time(pid)}"


def dead_among(owners: Iterable[str]) -> set[str]:
    """Holders that lived in this process's own realm and are gone."""
    return {owner for owner in owners if _is_dead(owner)}


def _is_dead(owner: str) -> bool:
    realm, _, process = owner.rpartition("/")[0].rpartition("/")
    start_time = owner.rpartition("/")[2]
    if realm != _realm() or not process.isdecimal():
        return False
    return _start_time(int(process)) != start_time


def _realm() -> str:
    """Where a pid means the same process: one boot of one kernel, one process namespace."""
    return f"{current_boot_id()}/{os.readlink('/proc/self/ns/pid')}"


def _start_time(pid: int) -> str:
    """Empty for a process that is gone or a zombie."""
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    return ""
