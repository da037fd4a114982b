"""Clocks: leases are counted on a clock that goes on while the machine sleeps and that nobody can set."""

from __future__ import annotations

import time


def boottime_s() -> float:
    """Seconds since the machine booted, suspended time included (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """An id that changes with every boot of the machine; "" where the kernel does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_time(pid: int) -> int:
    """When the process started, in clock ticks since the boot (field 22 of its stat line): tells a reused pid."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rsplit(")", 1)[1].split()[19])
