"""Workers that stop at every gate: they go on when told to, however much time has passed, or die there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)


class Crash(BaseException):
    """The process is gone: nothing that it was about to do happens."""


class Fuse:
    """Counts the points that a process passes (before each statement, commit, call and answer) and ends it at one."""

    def __init__(self, length: int, only: str = "") -> None:
        """`only`: count points of this kind."""
        self._left = length
        self._only = only
        self.passed: list[str] = []
        """What each point was."""
        self.blown = False

    def burn(self, point: str) -> None:
        """One point more.

        Raises:
            Crash: this is the one.
        """
        if self.blown or self._only not in point:
            return
        self._left -= 1
        if self._left < 0:
            self.blown = True
            raise Crash
        self.passed.append(point)


async def gate(point: str) -> None:
    """A place between two effects. Outside of a process nothing happens here."""
    process = _CURRENT.get()
    if process is not None:
        process.pass_point(point)
        await process.halt()


def pass_point(point: str) -> None:
    """A place where a process may die but not be paused."""
    process = _CURRENT.get()
    if process is not None:
        process.pass_point(point)


class Process:
    """Something that does one piece of work at a time and can be paused, or killed, in the middle of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self.name = name
        self.fuse: Fuse | None = None
        self.crashed = False
        """Whether its last work ended so."""
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._gates = 0
        self._halted: asyncio.Future[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether it is in the middle of something."""
        return self._task is not None

    def begin(self, work: Coroutine[Any, Any, object]) -> None:
        """Start it; it stops at once, before the first effect."""
        assert not self.busy
        self.crashed = False
        self._task = self._loop.create_task(self._run(work))

    def go_on(self, gates: int = 1_000_000) -> None:
        """Go on to the next gate, or to one so many further, or to the end."""
        if self._task is None:
            return
        self._gates = gates - 1
        waiting, self._waiting = self._waiting, []
        self._halted = self._loop.create_future()
        for future in waiting:
            if not future.done():
                future.set_result(None)
        self._loop.run_until_complete(self._halted)
        if self._task.done():
            self._finish()

    def kill(self) -> None:
        """End it where it stands, as SIGKILL does."""
        if self._task is None:
            return
        self._task.cancel()
        self._loop.run_until_complete(asyncio.wait([self._task]))
        self._finish()

    async def halt(self) -> None:
        """What `gate` does in this process."""
        if self._gates > 0:
            self._gates -= 1
            return
        future = self._loop.create_future()
        self._waiting.append(future)
        self._tell_halted()
        await future

    def pass_point(self, point: str) -> None:
        """It dies here if its fuse says so."""
        if self.fuse is not None:
            self.fuse.burn(point)

    async def _run(self, work: Coroutine[Any, Any, object]) -> None:
        _CURRENT.set(self)
        try:
            await work
        finally:
            self._tell_halted()

    def _tell_halted(self) -> None:
        if self._halted is not None and not self._halted.done():
            self._halted.set_result(None)

    def _finish(self) -> None:
        task, self._task = self._task, None
        self._waiting.clear()
        if task is None or task.cancelled():
            return
        error = task.exception()
        self.crashed = isinstance(error, Crash)
        if error is not None and not self.crashed:
            raise error


@contextmanager
def acting_as(process: Process) -> Iterator[None]:
    """What runs here is that process's: it may die before any statement."""
    token = _CURRENT.set(process)
    try:
        yield
    finally:
        _CURRENT.reset(token)
