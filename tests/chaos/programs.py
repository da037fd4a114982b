"""What the jobs of a chaos run do: they count, and shout when another gang of the same job runs beside them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

SHOUT = "TWO GANGS AT ONCE"

# Each generation holds a lock for its whole life; the kernel lets go of it however the process ends.
COUNTER = f"""
import fcntl, os, sys, time
lock = open(sys.argv[1], "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("{SHOUT}", flush=True)
generation = os.environ["SHUNTER_GENERATION"]
lock.write(generation + "\\n")
lock.flush()
for line in range(int(sys.argv[2])):
    print("line", generation, line, flush=True)
    time.sleep(0.1)
"""


def counting(folder: Path, name: str, lines: int) -> dict[str, Any]:
    """A job that prints so many lines, ten a second, and leaves its generations in `folder`."""
    return {
        "version": "1",
        "name": name,
        "workload": {
            "kind": "script",
            "launcher": "plain",
            "command": [sys.executable, "-c", COUNTER, str(folder / f"{name}.generations"), str(lines)],
        },
        "resources": {"cpu_processes": 1},
        "recovery": {"node_recoveries": 50},
        "limits": {"max_cost_usd": 5.0, "max_queue_s": 600},
    }
