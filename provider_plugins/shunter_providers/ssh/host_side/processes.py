"""Processes as `/proc` shows them: who is alive, who belongs to a node, and how to end them."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Iterator, NamedTuple

MARK = "SSH_SHUNTER_NODE"
"""The variable that every process of a node inherits; its value is the node's token. (The agent hands on no variable
that begins with `SHUNTER_`.)"""

TERM_GRACE_S = 1.0
KILL_GRACE_S = 3.0


class Process(NamedTuple):
    """One process, beyond doubt: a pid alone is reused."""

    pid: int
    start_time: int


def is_alive(process: Process) -> bool:
    """Whether this very process runs. A zombie is dead."""
    return _start_time(process.pid) == process.start_time


def marked(token: str) -> list[Process]:
    """Living processes that carry the node's mark."""
    mark = (f"{MARK}={token}").encode()
    found = []
    for pid in _pids():
        started = _start_time(pid)
        if started is not None and pid != os.getpid() and _has_mark(pid, mark):
            found.append(Process(pid, started))
    return found


def end_all(token: str, agent: Process | None) -> bool:
    """SIGTERM to the agent, then SIGKILL to whatever of the node is left. True: nothing is."""
    if agent is not None and is_alive(agent):
        _send(agent, signal.SIGTERM)
        give_up_at = time.monotonic() + TERM_GRACE_S
        while is_alive(agent) and time.monotonic() < give_up_at:
            time.sleep(0.01)
    give_up_at = time.monotonic() + KILL_GRACE_S
    while True:  # looked at anew each time: what is being killed may still have forked
        left = marked(token)
        if agent is not None and is_alive(agent) and agent not in left:
            left.append(agent)
        if not left:
            return True
        for process in left:
            _send(process, signal.SIGKILL)
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.02)


def _send(process: Process, number: int) -> None:
    if is_alive(process):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _start_time(pid: int) -> int | None:
    """None: no such process, or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False
