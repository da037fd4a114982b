"""Kills, stops and cancels at random, from a seed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import httpx
from support.control_plane import ControlPlane


@dataclass
class Monkey:
    """What it did is in `diary`, so that a run can be told."""

    plane: ControlPlane
    random: Random
    jobs: Sequence[str]
    diary: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)

    def act(self) -> None:
        """One act of malice."""
        act = self.random.choice(self._acts())
        self.diary.append(act.__name__.strip("_"))
        act()

    def _acts(self) -> Sequence[Callable[[], None]]:
        return (
            self._kill_worker,
            self._kill_worker_child,
            self._pause_worker_child,
            self._kill_api,
            self._kill_redis,
            self._kill_agent,
            self._kill_rank,
            self._cancel,
        )

    def _kill_worker(self) -> None:
        self.plane.kill("worker")
        self._breathe()
        self.plane.start_worker()

    def _kill_worker_child(self) -> None:
        self._signal(self.plane.children(), signal.SIGKILL)

    def _pause_worker_child(self) -> None:
        """Longer than the lease of a step: it wakes up with a fence that is no longer its own."""
        children = self.plane.children()
        if children:
            child = self.random.choice(children)
            self._send(child, signal.SIGSTOP)
            time.sleep(self.random.uniform(0.5, 4.0))
            self._send(child, signal.SIGCONT)

    def _kill_api(self) -> None:
        self.plane.kill("api")
        self._breathe()
        self.plane.start_api()

    def _kill_redis(self) -> None:
        self.plane.kill("redis")
        self._breathe()
        self.plane.start_redis()

    def _kill_agent(self) -> None:
        self._signal([agent.pid for agent in self.plane.agents().values()], signal.SIGKILL)

    def _kill_rank(self) -> None:
        self._signal(self.plane.ranks(), signal.SIGKILL)

    def _cancel(self) -> None:
        job_id = self.random.choice(self.jobs)
        with suppress(httpx.TransportError):
            answer = self.plane.http("POST", f"/v1/jobs/{job_id}/cancel")
            if answer.status_code == 202:
                self.cancelled.add(job_id)

    def _breathe(self) -> None:
        time.sleep(self.random.uniform(0.0, 1.0))

    def _signal(self, pids: Sequence[int], number: signal.Signals) -> None:
        if pids:
            self._send(self.random.choice(sorted(pids)), number)

    def _send(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
