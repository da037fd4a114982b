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

_TORCH = f"{os.sep}torch{os.sep}"
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
        place, waits_in_torch = self._place()
        self._report(REASON, f"{message} It stood {place}. Every rank's stderr shows where all threads stood.")
        # A rank in a collective is seldom the one that hangs: another one that ends first is the one that is named.
        graces = 2 if waits_in_torch else 1
        time.sleep(min(_GRACE_S, self._allowed_s) * graces)
        os._exit(1)

    def _place(self) -> tuple[str, bool]:
        """Where the main thread stands, outside of torch; and whether it waits in torch there."""
        frame = sys._current_frames().get(self._main or 0)
        stack = traceback.extract_stack(frame) if frame is not None else []
        if not stack:
            return "in no frame of Python", False
        inner = stack[-1]
        outer = next((entry for entry in reversed(stack) if _TORCH not in entry.filename), inner)
        told = f"in {outer.name} ({os.path.basename(outer.filename)}:{outer.lineno})"
        waits = _TORCH in inner.filename
        return (f"{told} and waited in torch there ({inner.name})" if waits else told), waits
