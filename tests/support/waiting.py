"""Waiting for something that another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(
    predicate: Callable[[], object], *, description: str, timeout_s: float = 30.0, every_s: float = 0.02
) -> None:
    """Return as soon as `predicate()` is true; fail with `description` when it is not in time.

    `every_s`: between two looks; longer where a look costs more than it is worth to know so soon.
    """
    deadline = time.monotonic() + timeout_s
    while not predicate():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {description}"
        time.sleep(every_s)
