"""One clock for everything: the database's, the workers' and the cloud's. It moves only when told to."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import Engine, event

_BEGAN = 1_800_000_000.0


class Clock:
    """Stands in for the module `time` in the workers' modules."""

    def __init__(self) -> None:
        self.now = _BEGAN
        self.database_behind_s = 0.0
        """By how much the database's was set back."""

    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def time(self) -> float:
        """Seconds since the epoch."""
        return self.now

    def monotonic(self) -> float:
        """The same clock: it never goes back here."""
        return self.now

    @property
    def moment(self) -> datetime:
        """Now, as rows hold it."""
        return datetime.fromtimestamp(self.now - self.database_behind_s, UTC)

    def rule(self, engine: Engine) -> None:
        """Make it the clock of a SQLite database."""

        def replace(connection: Any, _record: object) -> None:
            connection.create_function("unixepoch", 1, lambda _: self.now - self.database_behind_s)

        event.listen(engine, "connect", replace)

    def rule_workers(self, patch: pytest.MonkeyPatch) -> None:
        """Make it the clock of every module of the workers that reads one."""
        for name, module in list(sys.modules.items()):
            if name.startswith("shunter_workers.") and _reads_time(module):
                patch.setattr(module, "time", self)


def _reads_time(module: ModuleType) -> bool:
    return getattr(module, "time", None) is time
