"""Whether the worker group makes progress, by the `run/alive-<pid>` files that its processes touch.

A process that hangs keeps its pid: only the file's time shows it. The clock is the supervisor's own monotonic one, so
that a machine that slept, or a clock that was set, looks like nothing at all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

STALE_AFTER_S = 60.0


class Progress:
    """Watches the files of one worker group."""

    def __init__(self, run: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._clock = clock
        self._seen: dict[int, tuple[float, float]] = {}

    def is_up(self, group: int, since: float) -> bool:
        """Whether a process of this group has shown life since that time (epoch seconds)."""
        return any(touched >= since - 1 for touched in self._files(group).values())

    def stuck(self, group: int) -> list[int]:
        """The processes of this group that have not touched their file for `STALE_AFTER_S`.

        Where nobody has had a file for as long it is the group: all have died, and were not replaced.
        """
        now = self._clock()
        files = self._files(group) or {group: 0.0}
        self._seen = {
            pid: self._seen[pid] if pid in self._seen and self._seen[pid][0] == touched else (touched, now)
            for pid, touched in files.items()
        }
        return sorted(pid for pid, (_, seen_at) in self._seen.items() if now - seen_at > STALE_AFTER_S)

    def _files(self, group: int) -> dict[int, float]:
        """The files' times by pid; files of processes that ended are removed, those of other groups left alone."""
        found: dict[int, float] = {}
        for path in self._run.glob("alive-*"):
            pid_text = path.name.removeprefix("alive-")
            if not pid_text.isdecimal():
                continue
            with suppress(OSError):
                try:
                    if os.getpgid(int(pid_text)) == group:
                        found[int(pid_text)] = path.stat().st_mtime
                except ProcessLookupError:
                    path.unlink(missing_ok=True)
        return found
