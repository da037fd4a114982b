"""Signals as wishes: the running step is finished, all ranks agree on one, a checkpoint is saved.

SIGTERM: the last one, and then the training stops. SIGUSR1: one now, and the training goes on.
"""

from __future__ import annotations

import signal
from types import FrameType

EX_TEMPFAIL = 75
"""The exit code of a training that was stopped on request, its checkpoint saved."""


class Wishes:
    """What this rank was asked for. Ranks hear of it at different times; see `pace.py` for the agreement."""

    def __init__(self) -> None:
        self.stop = False
        self._save = False

    def listen(self) -> None:
        """From now on these signals no longer end the process. (Before the gang has met, there is nothing to save.)"""
        signal.signal(signal.SIGTERM, self._hear_stop)
        signal.signal(signal.SIGUSR1, self._hear_save)

    def take_save(self) -> bool:
        """Whether a checkpoint was asked for since the last time; only rank 0 speaks for the gang in this."""
        wanted, self._save = self._save, False
        return wanted

    def _hear_stop(self, number: int, frame: FrameType | None) -> None:
        self.stop = True

    def _hear_save(self, number: int, frame: FrameType | None) -> None:
        self._save = True
