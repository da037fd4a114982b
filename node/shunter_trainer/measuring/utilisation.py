"""How much of the hardware's speed a training uses (MFU), and how much of its memory."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping

import torch
from shunter_schemas.gpu_peaks import peak_tflops

from shunter_trainer.failures import UserFault

_PEAK_VARIABLE = "SHUNTER_PEAK_TFLOPS"
_GIB = 2.0**30


def peak_flops(device: torch.device, environ: Mapping[str, str] = os.environ) -> float | None:
    """FLOP/s of one rank's device at its best, in 16-bit matrix products; None: not known, as of a CPU.

    `SHUNTER_PEAK_TFLOPS` among the document's variables says it where the table does not, or instead of it.

    Raises: UserFault when that variable is no positive number.
    """
    if given := environ.get(_PEAK_VARIABLE):
        try:
            tflops = float(given)
        except ValueError:
            tflops = 0.0
        if not 0 < tflops < float("inf"):
            raise UserFault(f"/environment/variables/{_PEAK_VARIABLE}", f"must be a positive number, not {given!r}")
        return tflops * 1e12
    known = peak_tflops(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return None if known is None else known * 1e12


def peak_memory_gib(device: torch.device) -> float:
    """The most memory that this rank held so far: on its GPU what tensors took, on a CPU the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / _GIB
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _GIB
