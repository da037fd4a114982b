"""What each process of this machine has done since it began: counters in small files, for whoever asks how busy it is.

Files, not rows: counting must not itself cost statements.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EVERY_S: Final = 5.0
"""How often a process writes its counters."""
_PREFIX: Final = "activity-"


@dataclass(frozen=True, slots=True)
class Activity:
    """One process."""

    role: str
    pid: int
    at: float
    """When it wrote this: seconds of its machine's boot clock."""
    processor_s: float
    counts: Mapping[str, float]
    """Since it began, by name."""


def write(run_dir: Path, role: str, counts: Mapping[str, float]) -> None:
    """Leave this process's counters. A disk that is full costs the report, nothing else."""
    pid = os.getpid()
    told = {"role": role, "at": time.monotonic(), "processor_s": time.process_time(), "counts": dict(counts)}
    draft = run_dir / f".{_PREFIX}{pid}"
    with suppress(OSError):
        draft.write_text(json.dumps(told))
        draft.replace(run_dir / f"{_PREFIX}{pid}")


def forget(run_dir: Path) -> None:
    """This process ends."""
    with suppress(OSError):
        (run_dir / f"{_PREFIX}{os.getpid()}").unlink(missing_ok=True)


def read(run_dir: Path) -> list[Activity]:
    """Every process of this machine that lives, by role and pid. Files that killed processes left are removed."""
    found = []
    for path in run_dir.glob(f"{_PREFIX}*"):
        pid = path.name.removeprefix(_PREFIX)
        if not pid.isdecimal():
            continue
        with suppress(OSError, ValueError, KeyError):
            if not Path(f"/proc/{pid}").exists():
                path.unlink(missing_ok=True)
                continue
            told = json.loads(path.read_text())
            found.append(Activity(told["role"], int(pid), told["at"], told["processor_s"], told["counts"]))
    return sorted(found, key=lambda one: (one.role, one.pid))
