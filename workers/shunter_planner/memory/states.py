"""Model states: parameters, gradients, optimizer state, of one rank, on its GPU and in the host's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shunter_planner.models.shape import ModelShape
from shunter_planner.recipe import Recipe, Spread

BUCKET: Final = 500_000_000
"""Elements that DeepSpeed reduces at once at the most (`reduce_bucket_size`, `shunter_schemas.deepspeed.training`)."""
LEAST_BUCKET: Final = 1_000_000
LIVE: Final = 1_000_000_000
"""Parameters that ZeRO 3 keeps gathered at the most (`stage3_max_live_parameters`, DeepSpeed's default)."""


@dataclass(frozen=True, slots=True)
class States:
    """Bytes. What is offloaded lies in `host`."""

    parameters: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    host: float = 0.0

    @property
    def total(self) -> float:
        """On the GPU."""
        return self.parameters + self.gradients + self.optimizer


def model_states(shape: ModelShape, recipe: Recipe, spread: Spread) -> States:
    """What a rank holds between steps, and the gradients that it holds when it takes one.

    Source:
        Rajbhandari et al., "ZeRO", arXiv:1910.02054, section 3.1 and figure 1; Zhao et al., "PyTorch FSDP",
        arXiv:2304.11277, section 3; DeepSpeed 0.19 `runtime/zero/stage_1_and_2.py` and `stage3.py` for what is kept
        twice. Measured to 1 % on CPU ranks by `tests/planner/test_states_measured.py`.
    """
    if spread.kind == "ddp" or (spread.kind == "deepspeed" and spread.zero_stage == 0):
        return _replicated(shape, recipe, spread)
    if spread.kind == "deepspeed":
        return _zero(shape, recipe, spread)
    return _fully_sharded(shape, recipe, spread)


def _replicated(shape: ModelShape, recipe: Recipe, spread: Spread) -> States:
    trained, split = shape.trained_parameters, spread.tensor
    return States(
        parameters=(trained * recipe.parameter_bytes + shape.frozen_parameters * recipe.compute_bytes) / split,
        gradients=trained * recipe.parameter_bytes / split,
        optimizer=trained * recipe.moment_bytes / split,
    )


def _fully_sharded(shape: ModelShape, recipe: Recipe, spread: Spread) -> States:
    trained, split = shape.trained_parameters, spread.shards * spread.tensor
    held = States(
        parameters=(trained * recipe.parameter_bytes + shape.frozen_parameters * recipe.compute_bytes) / split,
        gradients=trained * recipe.parameter_bytes / split,
        optimizer=trained * recipe.moment_bytes / split,
    )
    return States(host=held.total) if spread.offload_parameters else held


def _zero(shape: ModelShape, recipe: Recipe, spread: Spread) -> States:
    """Stages 1 to 3. In 16 bits there is a copy in 16 bits, whole or at stage 3 split, beside the split fp32 one."""
    trained, ranks, stage = shape.trained_parameters, spread.world, spread.zero_stage
    low = recipe.compute_bytes
    # DeepSpeed keeps a flat fp32 copy also where the model itself computes in fp32.
    master = 4 * trained / ranks
    moments = trained * (recipe.moment_bytes * 4 / recipe.parameter_bytes) / ranks
    whole = shape.parameters * low
    parameters = whole / ranks if stage == 3 else whole
    gradients = _zero_gradients(trained, recipe, spread)
    if spread.offload_optimizer:
        host = master + moments + 4 * trained / ranks + (parameters if spread.offload_parameters else 0.0)
        return States(0.0 if spread.offload_parameters else parameters, 0.0, 0.0, host)
    return States(parameters, gradients, master + moments)


def _zero_gradients(trained: float, recipe: Recipe, spread: Spread) -> float:
    """In the type of the reduction: stage 1 keeps all until the step, and every stage the rank's own part."""
    own = trained * recipe.reduce_bytes / spread.world
    if spread.zero_stage == 1:
        return trained * recipe.reduce_bytes + own
    return own


def bucket_elements(parameters: float) -> float:
    """Elements of DeepSpeed's reduction bucket for a model of this size."""
    return min(BUCKET, max(parameters, LEAST_BUCKET))
