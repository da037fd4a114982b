"""Processes as `/proc` shows them, for tests that look at or kill processes which they did not start themselves."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def children(pid: int) -> list[int]:
    """Direct children, of any thread."""
    found: list[int] = []
    for task in (_PROC / str(pid) / "task").glob("*"):
        with suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def lives(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    with suppress(OSError):
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def environ(pid: int) -> dict[str, str]:
    """What it was started with; empty when it is gone."""
    with suppress(OSError):
        entries = (_PROC / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0")
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)
    return {}


def memory_mib(pid: int) -> dict[str, float]:
    """Its `Rss` and `Pss` (shared pages divided by their users), in MiB."""
    lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    figures = (line.split() for line in lines if line.startswith(("Rss:", "Pss:")))
    return {name.rstrip(":"): int(kib) / 1024 for name, kib, *_ in figures}
