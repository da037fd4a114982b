"""Celery's consumer, which takes hints from the broker, with patience for a broker that answers and refuses."""

from __future__ import annotations

import time
from typing import Final

from celery.worker.consumer import Consumer

PAUSE_S: Final = 2.0
"""As long as Celery waits for a broker that is away; without, it would come back at once, and fill the log."""


class PatientConsumer(Consumer):  # type: ignore[misc]  # Celery has no types
    """Comes back after a refusal, but not at once."""

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """The broker is away, or refuses: its disk or its memory is full, or it became a replica."""
        super().on_connection_error_after_connected(exc)
        if isinstance(exc, self.channel_errors):
            time.sleep(PAUSE_S)
