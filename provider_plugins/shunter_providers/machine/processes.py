"""Processes as `/proc` shows them: who is alive, who belongs to a node, and how to end them.

A pid alone proves nothing: it is reused, and a dead child stays as a zombie until its parent looks. A process is known
by its pid, its start time (field 22 of `/proc/PID/stat`) and the boot it belongs to.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, beyond doubt."""

    pid: int
    start_time: int
    boot_id: str


def current_boot_id() -> str:
    """The kernel's id of this boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this pid now; None: no living one."""
    started = _start_time(pid)
    return None if started is None else ProcessIdentity(pid, started, current_boot_id())


def is_alive(process: ProcessIdentity) -> bool:
    """Whether this very process runs. A zombie is dead."""
    return identify(process.pid) == process


def marked(mark: bytes) -> list[ProcessIdentity]:
    """Living processes that carry `mark` (`NAME=value`) in the environment they were started with.

    Children inherit it, also those that leave their parent's session and group. The environment of another user's
    process cannot be read; there are none on a node of ours.
    """
    boot_id = current_boot_id()
    return [
        ProcessIdentity(pid, started, boot_id)
        for pid in _pids()
        if _has_mark(pid, mark) and (started := _start_time(pid)) is not None
    ]


def send(process: ProcessIdentity, number: signal.Signals) -> None:
    """Signal this very process, or nothing when it has ended meanwhile."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if is_alive(process):  # checked after the descriptor pins the pid
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir(_PROC) if entry.isdigit())


def _start_time(pid: int) -> int | None:
    """None: no such process, or a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the command's name may hold spaces and brackets
    return None if fields[0] in "ZX" else int(fields[19])


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return mark in environment.split(b"\0")
