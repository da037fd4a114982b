"""What a rank that ran out of memory held, for the message that says so."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch

from shunter_trainer.measuring.utilisation import peak_memory_gib

_GIB = 2.0**30
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_TOTAL = Path("/proc/meminfo")


def memory_facts() -> str:
    """One or two sentences with the numbers of this rank's device, and of the host."""
    told = []
    cuda: Any = torch.cuda  # in parts untyped
    if cuda.is_available() and cuda.is_initialized():
        device = torch.device("cuda", torch.cuda.current_device())
        with contextlib.suppress(RuntimeError):  # after some faults the driver answers nothing any more
            free, total = torch.cuda.mem_get_info(device)
            told.append(
                f"At the most, tensors took {peak_memory_gib(device):.2f} GiB of the {total / _GIB:.2f} GiB of "
                f"{torch.cuda.get_device_name(device)}, and {free / _GIB:.2f} GiB are free now."
            )
    told.append(_host())
    return " ".join(told)


def _host() -> str:
    used_gib = peak_memory_gib(torch.device("cpu"))
    limits = [limit for limit in (_total_gib(), *map(_limit_gib, _LIMITS)) if limit is not None]
    of = f" of the host's {min(limits):.2f} GiB, which all ranks of the node share" if limits else ""
    return f"The process took {used_gib:.2f} GiB{of}."


def _total_gib() -> float | None:
    try:
        line = next(line for line in _TOTAL.read_text().splitlines() if line.startswith("MemTotal:"))
        return int(line.split()[1]) * 1024 / _GIB
    except (OSError, StopIteration, ValueError):
        return None


def _limit_gib(file: Path) -> float | None:
    try:
        return int(file.read_text()) / _GIB
    except (OSError, ValueError):  # no such control group, or "max"
        return None
