"""What a fleet that was killed goes on with: one row an agent, written when something changed for it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class Memory:
    """Used by one process at a time, and by one thread."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        # A killed process loses nothing by it; a machine that loses power has lost its simulated nodes anyway.
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.execute("CREATE TABLE IF NOT EXISTS agents (handle PRIMARY KEY, kept)")

    def all(self) -> dict[str, dict[str, Any]]:
        """By handle."""
        return {handle: json.loads(kept) for handle, kept in self._connection.execute("SELECT * FROM agents")}

    def write(self, kept: Mapping[str, Mapping[str, Any]], forget: Iterable[str]) -> None:
        """Keep some, forget others."""
        self._connection.execute("BEGIN")
        rows = [(handle, json.dumps(one)) for handle, one in kept.items()]
        self._connection.executemany("REPLACE INTO agents VALUES (?, ?)", rows)
        self._connection.executemany("DELETE FROM agents WHERE handle = ?", [(handle,) for handle in forget])
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
