"""Waiting for something that another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(predicate: Callable[[], object], *, description: str, timeout_s: float = 30.0) -> None:
    """Return as soon as `predicate()` is true; fail with `description` when it is not in time."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {description}"
        time.sleep(0.02)
