"""The agent inside the container: as any other, but that it has no hold of the machine."""

from __future__ import annotations

import time

from shunter_agent.agent import Agent
from shunter_agent.containing.statuses import ENDS_MACHINE


class Contained(Agent):
    """Where another agent powers the machine off, this one ends and leaves it to the keeper."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._status = 0

    def run(self) -> int:
        """See `Agent.run`; `ENDS_MACHINE`: the keeper has to end the machine."""
        return super().run() or self._status

    def _end_machine(self) -> None:
        self._status, self._leave_by = ENDS_MACHINE, time.monotonic()
