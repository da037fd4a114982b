"""How a training computes, and how it is spread: what memory and time are functions of, besides model and machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from shunter_schemas.optimization import Sgd
from shunter_schemas.training import TrainingWorkload

BYTES: Final = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
"""Of one number; what fp8 layers hand on is bf16."""

Checkpointing = Literal["none", "selective", "full", "selective_alternate"]
"""What of the activations is computed again (see `shunter_trainer.models.recompute`). `selective_alternate` keeps every
second matrix product only, as torchtitan does; for comparisons with its published runs."""

Loss = Literal["eager", "compiled", "fused"]
"""How logits become a loss: in fp32 copies (ours, `transformers`); in one compiled kernel; in place."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Types, optimizer, and how logits become a loss. Bytes are those of one number."""

    parameter_bytes: int = 4
    compute_bytes: int = 2
    reduce_bytes: int = 4
    moment_bytes: int = 8
    """Optimizer state of one trained parameter."""
    dtype: str = "bf16"
    """Of the matrix products."""
    compiled: bool = False
    loss: Loss = "eager"

    @property
    def mixes(self) -> bool:
        """Whether it computes in another type than parameters are kept in."""
        return self.parameter_bytes != self.compute_bytes


@dataclass(frozen=True, slots=True)
class Spread:
    """A strategy on a number of ranks. `shards` ranks hold one copy of what is split; `world / shards` copies."""

    kind: Literal["ddp", "fsdp", "hsdp", "deepspeed"]
    world: int
    per_node: int
    shards: int = 1
    zero_stage: int = 0
    offload_optimizer: bool = False
    offload_parameters: bool = False
    reshard: bool = True
    tensor: int = 1
    """Ranks over which matrices are split, with sequences between them (for published runs; no strategy of ours)."""
    context: int = 1
    """Ranks over which a sequence is split (for published runs)."""

    @property
    def nodes(self) -> int:
        """How many nodes it takes."""
        return max(1, -(-self.world // self.per_node))

    @property
    def data_ranks(self) -> int:
        """Ranks that see different samples."""
        return max(1, self.world // (self.tensor * self.context))

    @property
    def name(self) -> str:
        """For people: `ddp`, `zero-3 + offload`."""
        if self.kind != "deepspeed":
            return f"{self.kind} + offload" if self.offload_parameters else self.kind
        return f"zero-{self.zero_stage}" + (" + offload" if self.offload_optimizer else "")


@dataclass(frozen=True, slots=True)
class Cut:
    """How a rank goes through its share of a step."""

    micro_size: int
    accumulation: int
    checkpointing: Checkpointing


def recipe_of(workload: TrainingWorkload) -> Recipe:
    """The recipe of a document. A user's own optimizer is taken for one with two moments."""
    dtypes = workload.dtypes
    parameter_bytes, moments = BYTES[dtypes.parameters], 2
    if isinstance(workload.optimizer, Sgd):
        moments = 1 if workload.optimizer.momentum else 0
    return Recipe(
        parameter_bytes=parameter_bytes,
        compute_bytes=BYTES[dtypes.compute],
        reduce_bytes=BYTES[dtypes.reduce],
        moment_bytes=moments * parameter_bytes,
        dtype=dtypes.compute,
        compiled=workload.compile is True,
    )
