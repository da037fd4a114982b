"""The pace of an account's calls: a reckoning that several processes can keep in one number, and a pacer for one.

The number is the time at which the next call would come if all came evenly (the generic cell rate algorithm): calls may
run ahead of it by the rate's tolerance, so that a quiet account may burst and a busy one is even.
"""

from __future__ import annotations

import hashlib
import time
from typing import NamedTuple

from shunter_providers.contract import Instance, Rate


class Turn(NamedTuple):
    """What becomes of a request for a turn."""

    wait_s: float
    next_at: float | None
    """What to keep; None: nothing was reserved."""


def reckon(next_at: float | None, now: float, rate: Rate, at_most_s: float) -> Turn:
    """The next turn, given the number that is kept (None: no call yet)."""
    due = now if next_at is None or next_at > now + 3600 + rate.per_s else max(next_at, now)  # beyond: a clock's jump
    wait_s = max(0.0, due - rate.tolerance_s - now)
    if wait_s > at_most_s:
        return Turn(wait_s, None)
    return Turn(wait_s, due + rate.interval_s)


def held_off(next_at: float | None, now: float, rate: Rate, for_s: float) -> float:
    """The number that keeps everybody waiting for so long (an hour at most)."""
    return max(next_at or now, now + min(for_s, 3600.0) + rate.tolerance_s)


def bucket_of(instance: Instance, credential: str, rate: Rate) -> str:
    """The name under which calls of one account count, without telling its credential."""
    digest = hashlib.sha256(f"{instance.plugin} {credential}".encode()).hexdigest()[:20]
    return f"{instance.plugin}/{digest}/{rate.kind}-{rate.calls}-{rate.per_s:g}"


class OwnPacer:
    """The pace of one process, where no store is at hand."""

    def __init__(self) -> None:
        self._next_at: dict[str, float] = {}

    async def take_turn(self, bucket: str, rate: Rate, at_most_s: float) -> float:
        """See the contract."""
        turn = reckon(self._next_at.get(bucket), time.monotonic(), rate, at_most_s)
        if turn.next_at is not None:
            self._next_at[bucket] = turn.next_at
        return turn.wait_s

    async def hold_off(self, bucket: str, rate: Rate, for_s: float) -> None:
        """See the contract."""
        self._next_at[bucket] = held_off(self._next_at.get(bucket), time.monotonic(), rate, for_s)
