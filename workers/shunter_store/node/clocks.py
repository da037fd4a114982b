"""Clocks of nodes, held against the service's own."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

NOTABLE_S: Final = 1.0
"""Less than this is the way of a message."""
_NONSENSE_S: Final = 10 * 365 * 86_400.0
"""More than this is no skew: no time can be reckoned with it."""


def ahead(clock: float | None, now: datetime) -> timedelta:
    """How far a node's clock, as it read when a message left, is ahead of the service's; 0 where that is not known."""
    skew_s = 0.0 if clock is None else clock - now.timestamp()
    return timedelta(seconds=skew_s if NOTABLE_S <= abs(skew_s) < _NONSENSE_S else 0.0)
