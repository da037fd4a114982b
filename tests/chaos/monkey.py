"""Kills, pauses, cuts off, misdates and cancels at random, from a seed; what it takes it gives back after a while."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

import httpx
from support.faulty_line import BAD_WEATHER, CLEAR
from support.own_namespaces import SmallDisk

from chaos.hint_loss import LOSING_HINTS
from chaos.site import STEP_LEASE_S, Site

Act = Callable[[], None]

_LONGEST_S: Final = 3.0
"""Of what is not meant to outlast a lease."""
_BEYOND_A_LEASE_S: Final = STEP_LEASE_S + 1.0
_JUMPS_S: Final = (-3 * 3600.0, -90.0, 45.0, 7 * 3600.0)


@dataclass
class Monkey:
    """What it did is in `diary`, so that a run can be told."""

    site: Site
    random: Random
    jobs: Sequence[str]
    disk: SmallDisk | None = None
    diary: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    """Ids of jobs whose cancel was accepted, or may have been."""
    sure: set[str] = field(default_factory=set)
    """Those of them whose cancel was."""
    hit: set[str] = field(default_factory=set)
    """Handles of the nodes of which an agent or a rank was killed, or whose disk may have been full."""
    _owed: list[tuple[float, Act]] = field(default_factory=list)
    """What is given back, and when (monotonic)."""

    def act(self) -> None:
        """One act of malice."""
        acts = self._acts()
        name = self.random.choice(sorted(acts))
        self.diary.append(name)
        acts[name]()

    def rest(self, seconds: float) -> None:
        """Let time pass, and give back what is due."""
        until = time.monotonic() + seconds
        while True:
            self._give_back(time.monotonic())
            self.site.revive()
            if time.monotonic() >= until:
                return
            time.sleep(min(0.05, max(0.0, until - time.monotonic())))

    def heal(self) -> None:
        """Wait until everything is given back."""
        while self._owed:
            self.rest(0.05)

    def _acts(self) -> Mapping[str, Act]:
        acts: dict[str, Act] = {
            "kill worker": lambda: self._kill(self.random.choice(self.site.workers)),
            "kill worker child": lambda: self._signal(self.site.children(), signal.SIGKILL),
            "pause worker child": lambda: self._pause(self.site.children()),
            "pause worker beyond its lease": self._pause_worker,
            "kill API": lambda: self._kill(self.random.choice(self.site.apis)),
            "pause API": lambda: self._pause(self._pids(self.site.apis)),
            "kill Redis": lambda: self._kill("redis"),
            "kill the whole service": self._kill_all,
            "pause Redis": lambda: self._pause(self._pids(["redis"])),
            "kill agent": lambda: self._kill_on_a_node(self._agents()),
            "pause agent": lambda: self._pause(list(self._agents())),
            "kill rank": lambda: self._kill_on_a_node(self.site.ranks_by_node()),
            "pause rank": lambda: self._pause(self.site.ranks()),
            "cancel": self._cancel,
            **{f"weather on {name}": partial(self._weather, name) for name in self.site.wires},
        }
        if self.site.postgres is not None:
            acts |= {
                "kill PostgreSQL": self._kill_postgres,
                "pause PostgreSQL": self._pause_postgres,
                "kill backend": lambda: self._where_up(lambda server: server.kill_backend(self.random)),
            }
        if self.site.has_clocks:
            acts["jump an agent's clock"] = self._jump_agent
        if self.site.has_clocks and self.site.postgres is not None:
            acts |= {f"jump the clock of {role}": partial(self._jump, role) for role in self._clocked()}
        if self.disk is not None:
            acts["fill the disk"] = self._fill_disk
        return acts

    # --- processes ---------------------------------------------------------------------------------------------

    def _kill(self, role: str) -> None:
        if role in self.site.roles:
            self.site.kill(role)
            self._later(self._a_while(), lambda: self.site.start(role))

    def _kill_all(self) -> None:
        """As when its machine loses power: all parts at once, and each comes back in its own time."""
        for role in list(self.site.roles):
            self._kill(role)

    def _pause_worker(self) -> None:
        """It wakes up with claims and singletons' leases that are no longer its own."""
        worker = self.random.choice(self.site.workers)
        if worker in self.site.roles:
            for pid in [self.site.roles[worker].pid, *self.site.children_of(worker)]:
                self._stop_for(pid, _BEYOND_A_LEASE_S)

    def _pause(self, pids: Sequence[int]) -> None:
        if pids:
            self._stop_for(self.random.choice(sorted(pids)), self._a_while())

    def _stop_for(self, pid: int, seconds: float) -> None:
        _send(pid, signal.SIGSTOP)
        self._later(seconds, lambda: _send(pid, signal.SIGCONT))

    def _signal(self, pids: Sequence[int], number: signal.Signals) -> None:
        if pids:
            _send(self.random.choice(sorted(pids)), number)

    def _kill_on_a_node(self, handles: Mapping[int, str]) -> None:
        """`handles`: of nodes, by the processes to choose from."""
        if handles:
            pid = self.random.choice(sorted(handles))
            self.hit.add(handles[pid])
            _send(pid, signal.SIGKILL)

    def _agents(self) -> dict[int, str]:
        return {agent.pid: handle for handle, agent in self.site.agents().items()}

    def _pids(self, roles: Sequence[str]) -> list[int]:
        return [self.site.roles[role].pid for role in roles if role in self.site.roles]

    # --- the database ------------------------------------------------------------------------------------------

    def _where_up(self, act: Callable[..., None]) -> None:
        if self.site.postgres is not None and self.site.postgres.is_up:
            act(self.site.postgres)

    def _kill_postgres(self) -> None:
        def kill(server: object) -> None:
            assert self.site.postgres is not None
            self.site.postgres.kill()
            self._later(self._a_while(), self.site.postgres.start)

        self._where_up(kill)

    def _pause_postgres(self) -> None:
        def pause(server: object) -> None:
            assert self.site.postgres is not None
            self.site.postgres.pause()
            self._later(self._a_while(), lambda: self._where_up(lambda up: up.resume()))

        self._where_up(pause)

    # --- lines, clocks, disks ----------------------------------------------------------------------------------

    def _weather(self, name: str) -> None:
        kinds = [*BAD_WEATHER, *([LOSING_HINTS] if name == "workers-redis" else [])]
        line, weather = self.site.wires[name], self.random.choice(kinds)
        self.diary[-1] += f" ({weather.name})"
        line.turn(weather)
        self._later(self._a_while(), lambda: line.turn(CLEAR))

    def _clocked(self) -> list[str]:
        return [*self.site.apis, *self.site.workers]

    def _jump(self, role: str) -> None:
        ahead_s = self.random.choice(_JUMPS_S)
        self.diary[-1] += f" ({ahead_s:+.0f} s)"
        self.site.set_clock(role, ahead_s)

    def _jump_agent(self) -> None:
        tokens = sorted(self.site.agents())
        if tokens:
            self.site.set_agent_clock(self.random.choice(tokens), self.random.choice(_JUMPS_S))

    def _fill_disk(self) -> None:
        assert self.disk is not None
        self.disk.fill()
        self._later(self._a_while(), self._free_the_disk)

    def _free_the_disk(self) -> None:
        """Nodes lie on it too, and could not write for a while."""
        assert self.disk is not None
        self.disk.free()
        self.hit |= self.site.handles()

    # --- wishes ------------------------------------------------------------------------------------------------

    def _cancel(self) -> None:
        """A call whose answer is lost may have been carried out."""
        job_id = self.random.choice(self.jobs)
        answer: httpx.Response | None = None
        with suppress(httpx.TransportError):
            answer = self.site.http("POST", f"/v1/jobs/{job_id}/cancel")
        if answer is None or answer.status_code == 202 or answer.status_code >= 500:
            self.cancelled.add(job_id)
        if answer is not None and answer.status_code == 202:
            self.sure.add(job_id)

    # --- time --------------------------------------------------------------------------------------------------

    def _a_while(self) -> float:
        return self.random.uniform(0.2, _LONGEST_S)

    def _later(self, seconds: float, act: Act) -> None:
        self._owed.append((time.monotonic() + seconds, act))

    def _give_back(self, now: float) -> None:
        due = [act for at, act in self._owed if at <= now]
        self._owed = [(at, act) for at, act in self._owed if at > now]
        for act in due:
            act()


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
