"""GPUs as people name them, from what vendors write: `NVIDIA H100 80GB HBM3`, `A10 (24 GB PCIe)`, `nvidia_h100`."""

from __future__ import annotations

import re
from typing import Final

# fmt: off
_MODELS: Final = (
    "GB300", "GB200", "GH200", "B300", "B200", "H200", "H100", "H800", "H20",
    "A100", "A800", "A40", "A30", "A16", "A10G", "A10", "A2",
    "L40S", "L40", "L4", "V100", "P100", "P40", "P4", "T4",
    "MI355X", "MI325X", "MI300X", "MI300A", "MI250X", "MI250", "MI210", "MI100",
)
# fmt: on
_RTX: Final = re.compile(
    r"(?:RTX|GTX)[ _-]*(?P<line>PRO)?[ _-]*(?P<letter>A)?(?P<number>\d{4})[ _-]*(?P<grade>TI[ _-]*SUPER|TI|SUPER|ADA)?",
    re.IGNORECASE,
)
_WORKSTATION: Final = re.compile(r"(?<![A-Z0-9])A(?P<number>[456]\d00)(?![0-9])", re.IGNORECASE)
_OTHERS: Final = re.compile(r"[^a-z0-9]+")
_GB: Final = re.compile(r"(\d+) ?GB", re.IGNORECASE)


def gpu_model(name: str) -> str:
    """The model alone: `H100`, `A100`, `RTX-4090`, `RTX-A6000`, `RTX-PRO-6000`; unknown names as they are."""
    for model in _MODELS:
        if re.search(rf"(?<![A-Z0-9]){model}(?![A-Z0-9])", name, re.IGNORECASE):
            return model
    if found := _RTX.search(name):
        grade = re.sub(r"[ _-]+", "-", found["grade"] or "").capitalize()
        parts = ("RTX" if "GTX" not in name.upper() else "GTX", "PRO" if found["line"] else "", "")
        return "-".join(part for part in (*parts, f"{found['letter'] or ''}{found['number']}".upper(), grade) if part)
    if found := _WORKSTATION.search(name):
        return f"RTX-A{found['number']}"
    return re.sub(r"[\s_]+", "-", name.strip())


def is_of(model: str, shown: str) -> bool:
    """Whether a GPU that NVIDIA's tool calls `shown` is of a model as an offer names it: its words come in their order,
    whatever stands between them (an `RTX-4000-Ada` shows itself as `NVIDIA RTX 4000 SFF Ada Generation`)."""
    letters, at = _OTHERS.sub("", shown.lower()), 0
    for word in _OTHERS.split(model.lower()):
        at = letters.find(word, at)
        if at < 0:
            return False
        at += len(word)
    return True


def memory_gib(name: str) -> float | None:
    """The memory that a name tells, where it does."""
    found = _GB.search(name)
    return float(found[1]) if found else None
