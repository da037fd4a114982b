"""SIGTERM as a wish: the running step is finished, all ranks agree on a last one, a checkpoint is saved."""

from __future__ import annotations

import signal
from types import FrameType

EX_TEMPFAIL = 75
"""The exit code of a training that was stopped on request, its checkpoint saved."""


class StopWish:
    """Whether this rank was asked to stop. Ranks hear of it at different times; see `pace.py` for the agreement."""

    def __init__(self) -> None:
        self.wanted = False

    def listen(self) -> None:
        """From now on SIGTERM no longer ends the process. (Before the gang has met, there is nothing to save.)"""
        signal.signal(signal.SIGTERM, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True
