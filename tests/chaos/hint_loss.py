"""Weather between workers and their broker in which every hint is lost."""

from __future__ import annotations

from typing import Final

from support.faulty_line import Weather

QUEUE: Final = "shunter:hints"
"""Where workers take hints from."""
NOBODYS_QUEUE: Final = "shunter:hintz"


def _misdirected(data: bytes) -> bytes:
    """Pushes, to another list of the same length; everything else as it is."""
    return data.replace(QUEUE.encode(), NOBODYS_QUEUE.encode()) if b"LPUSH" in data else data


LOSING_HINTS: Final = Weather("losing every hint", edit=_misdirected)
"""Each push arrives under another name, so that the broker says yes and nobody ever takes it."""
