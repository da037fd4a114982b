"""Every strategy by a short name, as the document says it."""

from __future__ import annotations

from typing import Any

_ZERO: dict[str, dict[str, Any]] = {f"zero-{stage}": {"kind": "deepspeed", "zero_stage": stage} for stage in range(4)}
_DOCUMENTS: dict[str, dict[str, Any]] = {
    "ddp": {"kind": "ddp"},
    "fsdp": {"kind": "fsdp"},
    "fsdp, kept": {"kind": "fsdp", "reshard_after_forward": False},
    "fsdp, by twos": {"kind": "fsdp", "reshard_after_forward": 2},
    "fsdp, cpu": {"kind": "fsdp", "offload": "cpu"},
    "fsdp, by class": {"kind": "fsdp", "wrap": ["Attention", "FeedForward", "Embedding"]},
    "hsdp": {"kind": "hsdp", "shard_size": 2},
    "hsdp, kept": {"kind": "hsdp", "shard_size": 2, "reshard_after_forward": False},
    **_ZERO,
}

ALL = ("ddp", "fsdp", "hsdp", "zero-0", "zero-1", "zero-2", "zero-3")
"""One of each kind."""
RESUMABLE = ("ddp", "fsdp", "hsdp", "zero-1", "zero-2", "zero-3")
VARIANTS = ("fsdp, kept", "fsdp, by twos", "fsdp, cpu", "fsdp, by class", "hsdp, kept")
"""The same kinds with other settings."""


def strategy(name: str, world_size: int) -> dict[str, Any]:
    """The strategy of this name; groups of two do not fit a single rank."""
    document = dict(_DOCUMENTS[name])
    if world_size == 1 and document.get("shard_size") == 2:
        document["shard_size"] = "node"
    if world_size == 1 and document.get("reshard_after_forward") == 2:
        document["reshard_after_forward"] = True
    return document
