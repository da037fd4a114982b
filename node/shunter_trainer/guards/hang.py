"""The hang watchdog: when no step ends for far too long, show where every thread stands, and end the rank.

A rank that hangs alone holds all others in a collective; ending it breaks their connections, so that the gang ends. So
that the log shows where all of them stood, each waits a little between showing its threads and ending.
"""

from __future__ import annotations

import faulthandler
import os
import statistics
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REASON = "hang"

_STDERR = 2  # the descriptor: it works whatever became of sys.stderr
_LEAST_S = 60.0
_MEDIANS = 20.0
_GRACE_S = 5.0
"""Ranks notice a hang about a second apart; the first to end would hide the others' places."""
_SLOW_PHASE_S = 1800.0
"""Allowed where no step ends by nature: start-up, loading, the last checkpoint, export."""


class HangWatchdog:
    """A thread that expects `beat` to be called again and again."""

    def __init__(
        self, report: Callable[[str, str], None], least_s: float = _LEAST_S, fixed_s: float | None = None
    ) -> None:
        """`report(reason, message)` is called before the process ends. `fixed_s`: what a step may take, whatever."""
        self._report = report
        self._least_s = least_s
        self._fixed_s = fixed_s
        self._main = threading.main_thread().ident
        self._steps_s: deque[float] = deque(maxlen=64)
        self._allowed_s = _SLOW_PHASE_S
        self._what = "start-up"
        self.last_beat = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="hang-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def beat(self) -> None:
        """Something was finished. Cheap enough for every step."""
        self.last_beat = time.monotonic()

    def pace(self, step_s: float) -> None:
        """What a step takes now; from the first call on steps are watched closely."""
        self._steps_s.append(step_s)
        self._what = "step"
        self._allowed_s = self._fixed_s or max(self._least_s, _MEDIANS * statistics.median(self._steps_s))
        self.beat()

    @contextmanager
    def slow_phase(self, what: str) -> Iterator[None]:
        """Inside, steps do not end, and rightly so."""
        before = self._what, self._allowed_s
        self._what, self._allowed_s = what, _SLOW_PHASE_S
        self.beat()
        try:
            yield
        finally:
            self._what, self._allowed_s = before
            self.beat()

    def _watch(self) -> None:
        while True:
            # A hang that keeps Python's lock stops this thread too; faulthandler's own timer needs no lock.
            faulthandler.dump_traceback_later(self._allowed_s + min(self._allowed_s, 2.0), exit=True, file=_STDERR)
            time.sleep(min(1.0, self._allowed_s / 4))
            silent_s = time.monotonic() - self.last_beat
            if silent_s > self._allowed_s:
                self._end(silent_s)

    def _end(self, silent_s: float) -> None:
        faulthandler.cancel_dump_traceback_later()
        message = f"No {self._what} ended for {silent_s:.0f} s (allowed: {self._allowed_s:.0f} s)."
        print(f"{message} Where every thread stands:", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True, file=_STDERR)
        self._report(REASON, f"{message} It stood {self._place()}. Every rank's stderr shows where all threads stood.")
        time.sleep(min(_GRACE_S, self._allowed_s))
        os._exit(1)

    def _place(self) -> str:
        """Where the main thread stands, outside of torch: a rank in a collective is seldom the one that hangs."""
        frame = sys._current_frames().get(self._main or 0)
        stack = traceback.extract_stack(frame) if frame is not None else []
        told = [f"in {entry.name} ({os.path.basename(entry.filename)}:{entry.lineno})" for entry in stack]
        return told[-1] if told else "in no frame of Python"
