"""What a generation sends up besides its records: logs, checkpoints, and in the end its outputs."""

from __future__ import annotations

import time
from typing import Any

from shunter_agent.reporting.checkpoints import CheckpointShipper, CheckpointWatch, Rule
from shunter_agent.reporting.logs import LogShipper
from shunter_agent.reporting.outputs import OutputShipper
from shunter_agent.shared import Place, Shared


class Shipment:
    """`step` again and again; after `finish` it comes to be `drained`."""

    def __init__(self, shared: Shared, place: Place, rule: Rule | None, known: dict[str, Any]) -> None:
        """`known`: checkpoint folders that were there before the generation began."""
        self._logs = LogShipper(shared, place)
        self._outputs = OutputShipper(shared, place) if place.node_rank == 0 else None
        self._checkpoints: CheckpointShipper | None = None
        if rule is not None:
            watch = CheckpointWatch(shared.layout.checkpoints, rule, known)
            self._checkpoints = CheckpointShipper(shared, place, watch)
        self._final = False
        self._look_s = 4 * shared.tuning.look_s
        self._due_at = 0.0

    def step(self) -> None:
        """Look at what there is to send; less often than at the ranks, since it takes more system calls."""
        now = time.monotonic()
        if now < self._due_at and not self._final:
            return
        self._due_at = now + self._look_s
        self._logs.step(everything=self._final)
        if self._checkpoints is not None:
            self._checkpoints.step(self._final)
        if self._final and self._outputs is not None:
            self._outputs.step()

    def show_logs(self) -> None:
        """Somebody watches: send all log bytes that there are."""
        self._logs.step(everything=True, watched=True)

    def finish(self) -> None:
        """Nobody writes any more: send everything that is left."""
        self._final = True

    @property
    def drained(self) -> bool:
        """Whether nothing is left to send; never before a step after `finish`."""
        parts = (self._logs, self._checkpoints, self._outputs)
        return self._final and all(part.idle for part in parts if part is not None)
