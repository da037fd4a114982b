"""The main thread's wait: for signals, for calls that other threads post, and for the next due moment."""

from __future__ import annotations

import os
import select
import signal
from collections import deque
from contextlib import suppress
from typing import Any, Callable

from shunter_agent.trace import trace_exception


class Loop:
    """Calls posted from any thread run one after another in the thread that turns the loop.

    A child's exit interrupts the wait at once (SIGCHLD through a wake-up descriptor), so nothing has to poll for it.
    """

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self.terminations = 0
        """How often SIGTERM or SIGINT came."""

    def install(self) -> None:
        """Take over the process's signals; only from the main thread."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGINT, self._terminate)
        signal.signal(signal.SIGHUP, lambda number, frame: None)  # ranks would inherit SIG_IGN

    def post(self, call: Callable[[], None]) -> None:
        """Have `call` run in the loop's thread, soon."""
        self._calls.append(call)
        with suppress(BlockingIOError):  # a full pipe wakes the loop just as well
            os.write(self._write, b"\0")

    def turn(self, wait_s: float) -> None:
        """Wait at most so long, then run what was posted. What a call raises is logged and goes no further."""
        if not self._calls:
            select.select([self._read], [], [], max(0.0, wait_s))
        with suppress(BlockingIOError):
            os.read(self._read, 65536)
        while self._calls:
            call = self._calls.popleft()
            try:
                call()
            except Exception:
                trace_exception("posted call")

    def _terminate(self, number: int, frame: Any) -> None:
        self.terminations += 1
