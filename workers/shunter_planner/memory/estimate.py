"""The peak of one GPU's memory, by part."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from shunter_planner.memory.activations import (
    kept_per_token,
    logits_per_position,
    outside_per_token,
    transient_per_token,
)
from shunter_planner.memory.states import model_states
from shunter_planner.memory.working import working_set
from shunter_planner.models.shape import ModelShape
from shunter_planner.recipe import Cut, Recipe, Spread

GIB: Final = 2.0**30

FRAGMENTATION: Final = 0.06
"""Of what tensors take, what the caching allocator holds besides.

Prior: torchtitan's 8B on 8 against 128 GPUs differ by 17.1 to 17.6 bytes a split parameter where tensors take 16.
"""
CONTEXT_BYTES: Final = 0.6 * GIB
"""Prior: a CUDA context with the kernels of torch and cuBLAS, which `nvidia-smi` shows and torch does not count."""
NCCL_BYTES: Final = 0.9 * GIB
"""Prior: NCCL's channels and buffers of one communicator over NVLink and network; not there for one rank."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes at the peak, by part. `runtime` is what torch does not count."""

    parameters: float
    gradients: float
    optimizer: float
    working: float
    activations: float
    logits: float
    fragmentation: float
    runtime: float
    host: float
    """In the host's memory, for this rank."""

    @property
    def reserved(self) -> float:
        """What torch's allocator holds: what trainers print as their peak."""
        return self.total - self.runtime

    @property
    def total(self) -> float:
        """What the card must have."""
        parts = (self.parameters, self.gradients, self.optimizer, self.working, self.activations, self.logits)
        return sum(parts) + self.fragmentation + self.runtime

    def parts_gib(self) -> dict[str, float]:
        """By part, for people and programs, the host's apart."""
        return {name: round(value / GIB, 3) for name, value in asdict(self).items() if name != "host"}


def peak_memory(  # the arguments of the function that memory is
    shape: ModelShape, positions: int, recipe: Recipe, spread: Spread, cut: Cut, *, on_gpu: bool = True
) -> Memory:
    """The peak over the three moments of a step at which it can be (see `Working`).

    Gradients count at each of them: where a step accumulates they are there, and where it does not the allocator has
    kept their place.
    """
    states, working = model_states(shape, recipe, spread), working_set(shape, recipe, spread)
    autocast = recipe.mixes and (spread.kind == "ddp" or (spread.kind == "deepspeed" and spread.zero_stage == 0))
    tokens = cut.micro_size * positions / (spread.context * spread.tensor)
    kept = kept_per_token(shape, recipe, cut.checkpointing, positions, autocast=autocast)
    transient = transient_per_token(shape, recipe, cut.checkpointing, positions, autocast=autocast) * tokens
    activations = tokens * (shape.layers * kept + outside_per_token(shape, recipe, autocast=autocast))
    rows = tokens if shape.loss_per_token else cut.micro_size
    logits = rows * logits_per_position(shape, recipe)
    moments = (
        (working.at_loss, activations, logits),
        (working.in_block, activations + transient, 0.0),
        (working.at_end, 0.0, 0.0),
    )
    gathered, activations, logits = max(moments, key=sum)
    tensors = states.total + gathered + activations + logits
    runtime = CONTEXT_BYTES + (NCCL_BYTES if spread.world > 1 else 0.0) if on_gpu else 0.0
    return Memory(
        parameters=states.parameters,
        gradients=states.gradients,
        optimizer=states.optimizer,
        working=gathered,
        activations=activations,
        logits=logits,
        fragmentation=FRAGMENTATION * tensors,
        runtime=runtime,
        host=states.host,
    )
