"""The cloud's own clock: nobody can set a provider's clock, so setting this machine's does not move it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex


class CloudClock:
    """Seconds of the epoch as they were when the cloud was first used in this boot, counted on by the boot clock.

    All processes that share the cloud share the file, so they agree whatever their wall clocks say.
    """

    def __init__(self, home: Path, cloud: str) -> None:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self._path = home / f"{cloud}.clock-{boot_id}"
        self._offset_s: float | None = None

    def now(self) -> float:
        """The time there."""
        if self._offset_s is None:
            self._offset_s = self._read() or self._begin()
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self._offset_s

    def _read(self) -> float | None:
        with suppress(FileNotFoundError):
            return float(self._path.read_text())
        return None

    def _begin(self) -> float:
        """Of several processes that begin at once, the first one's offset counts."""
        offset_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_name(f".clock-{token_hex(4)}")
        draft.write_text(repr(offset_s))
        try:
            with suppress(FileExistsError):
                os.link(draft, self._path)
        finally:
            draft.unlink()
        return float(self._path.read_text())
