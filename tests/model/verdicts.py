"""What a broken promise looks like."""

from __future__ import annotations

from typing import Final

PROMISES: Final = {
    1: "a job that was answered 201 is never lost",
    2: "no node without a row before it, no row closed without proof",
    3: "never two gangs of one job",
    4: "a healthy training is not disturbed",
    5: "cancel wins, and a success that came first counts",
    6: "events are gapless, and what was synced is kept exactly once",
    7: "the recorded cost is the ledger's, and a budget holds offline",
    8: "a node that is left alone stops itself",
}


class Broken(AssertionError):
    """A promise was broken."""

    def __init__(self, number: int, detail: str) -> None:
        super().__init__(f"promise {number} ({PROMISES[number]}): {detail}")
        self.number = number


def require(number: int, holds: object, detail: str) -> None:
    """Check one promise.

    Raises:
        Broken: it does not hold.
    """
    if not holds:
        raise Broken(number, detail)
