"""A gang: the processes of one generation on this node, started together, watched, and stopped together."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

from shunter_agent import processes
from shunter_agent.files import cut, read_json, tail
from shunter_agent.keeping.layout import Layout
from shunter_agent.launching.launchers import Process
from shunter_agent.reporting import oom
from shunter_agent.reporting.oom import KillWatch
from shunter_agent.reporting.verdict import FROM_OUTSIDE, Ended


class Member:
    """One process of the gang."""

    def __init__(self, process: Process, child: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.child = child
        self.started_at = time.monotonic()
        self.up = False
        self.ended: Ended | None = None


class Gang:
    """Used by the main thread only: a rank dies with the thread that started it."""

    def __init__(self, layout: Layout, generation: int, kills: KillWatch | None = None) -> None:
        self._layout = layout
        self._kills = kills or KillWatch()
        self._generation = generation
        self.members: list[Member] = []
        self._kill_at: float | None = None
        self._order = 0

    def start(self, wanted: list[Process], folder: str) -> None:
        """Start every process.

        Raises:
            OSError: one cannot be started; those before it are killed.
        """
        os.makedirs(self._layout.logs(self._generation), exist_ok=True)
        for process in wanted:
            try:
                self.members.append(Member(process, self._start(process, folder)))
            except OSError:  # noqa: PERF203 - a handful of processes
                self.kill()
                for member in self.members:
                    member.child.wait()
                self.members.clear()
                raise

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members if member.ended is None]

    @property
    def ends(self) -> list[Ended]:
        return [member.ended for member in self.members if member.ended is not None]

    @property
    def stopping(self) -> bool:
        """Whether the agent has told the processes to end."""
        return self._kill_at is not None

    def poll(self) -> list[Member]:
        """The members that ended since the last call; those that were killed come first: others fail in their wake."""
        gone = [member for member in self.running if member.child.poll() is not None]
        for member in sorted(gone, key=lambda member: -member.child.returncode not in FROM_OUTSIDE):
            self._order += 1
            member.ended = self._ended(member)
        if not gone:
            self._kills.sample()
        return sorted(gone, key=lambda member: member.ended.order if member.ended else 0)

    def stop(self, grace_s: float) -> None:
        """SIGTERM now; `enforce` sends SIGKILL when the grace is over. A shorter grace wins over a longer one."""
        if self._kill_at is None:
            for member in self.running:
                send = processes.signal_group if member.process.signal_group else processes.signal_process
                send(member.child, signal.SIGTERM)
        kill_at = time.monotonic() + grace_s
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)

    def ask_first(self, number: int) -> bool:
        """Send a signal to rank 0, which speaks for the gang; False: it is not up yet, and the signal would kill it."""
        for member in self.running:
            if member.process.rank == 0 and not member.up:
                return False
            if member.process.rank == 0:
                processes.signal_process(member.child, number)
        return True

    def enforce(self) -> float | None:
        """Kill what outlived its grace; returns the seconds until that is due, None if nothing is."""
        if self._kill_at is None or not self.running:
            return None
        left = self._kill_at - time.monotonic()
        if left <= 0:
            self.kill()
        return max(left, 0.1)

    def kill(self) -> None:
        """SIGKILL to the processes, their groups, and whatever else carries their mark."""
        if self._kill_at is None:
            self._kill_at = time.monotonic()
        for member in self.running:
            processes.signal_group(member.child, signal.SIGKILL)
        self.sweep()

    def sweep(self) -> None:
        """Kill descendants that outlived their rank."""
        processes.kill_marked(self._layout.root, self._generation)

    def _start(self, process: Process, folder: str) -> subprocess.Popen[bytes]:
        stdout = self._layout.rank_log(self._generation, process.rank, "stdout")
        stderr = self._layout.rank_log(self._generation, process.rank, "stderr")
        with open(stdout, "ab", buffering=0) as out, open(stderr, "ab", buffering=0) as err:
            return processes.start(process.argv, folder, process.environment, out, err)

    def _ended(self, member: Member) -> Ended:
        status, rank = member.child.returncode, member.process.rank
        starved = status == -signal.SIGKILL and not self.stopping and self._kills.grew()
        return Ended(
            rank=rank,
            exit_code=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            order=self._order,
            ours=self.stopping,
            tail="" if status == 0 else self._last_words(rank),
            reason=oom.REASON if starved else "",
            message=oom.MESSAGE if starved else "",
        )

    def _last_words(self, rank: int) -> str:
        """The end of its stderr; else its error file; else the end of its stdout."""
        words = tail(self._layout.rank_log(self._generation, rank, "stderr"))
        if not words:
            words = _error_text(read_json(self._layout.error_file(self._generation, rank)) or {})
        return cut(words) or tail(self._layout.rank_log(self._generation, rank, "stdout"))


def _error_text(found: dict[str, Any]) -> str:
    """What torch's `@record` writes: `{"message": {"message": "...", "extraInfo": {"py_callstack": "..."}}}`."""
    message = found.get("message")
    if not isinstance(message, dict):
        return str(message or "")
    extra = message.get("extraInfo")
    callstack = extra.get("py_callstack") if isinstance(extra, dict) else None
    return str(callstack or message.get("message") or "")
