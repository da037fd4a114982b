"""What a strategy gathers for a moment: whole parameters, whole gradients, buckets."""

from __future__ import annotations

from typing import NamedTuple

from shunter_planner.memory.states import LIVE, bucket_elements
from shunter_planner.models.shape import ModelShape
from shunter_planner.recipe import Recipe, Spread


class Working(NamedTuple):
    """Bytes at three moments of a step, at one of which memory is at its peak."""

    at_loss: float
    """The backward pass begins: all activations and the logits are there."""
    in_block: float
    """The last block's backward pass runs: all activations and the block's gradients are there."""
    at_end: float
    """The backward pass reaches what stands before the blocks: no activations any more."""


def working_set(shape: ModelShape, recipe: Recipe, spread: Spread) -> Working:
    """What is gathered beside the states.

    Source:
        FSDP2 (`torch.distributed.fsdp.fully_shard`): two blocks at a time, since the next one is fetched ahead; the
        root's parameters stay gathered from the forward to the backward pass; a gradient is reduced from a copy in the
        type of the reduction. DeepSpeed: `stage3_max_live_parameters`, `reduce_bucket_size`. DDP: under autocast the
        weights' casts are kept from the forward to the backward pass.
    """
    if spread.kind == "ddp" or (spread.kind == "deepspeed" and spread.zero_stage == 0):
        casts = shape.trained_parameters * recipe.compute_bytes / spread.tensor if recipe.mixes else 0.0
        bucket = 0.0
        if spread.kind == "deepspeed":
            bucket = bucket_elements(shape.parameters) * recipe.parameter_bytes
        return Working(casts, casts, casts + bucket)
    if spread.kind == "deepspeed":
        return _zero(shape, recipe, spread)
    return _fully_sharded(shape, recipe, spread)


def standing_buckets(shape: ModelShape, recipe: Recipe, spread: Spread) -> float:
    """Bytes of buckets that stay between steps: that of ZeRO 3, in the type of the reduction."""
    if spread.kind != "deepspeed" or spread.zero_stage != 3:
        return 0.0
    return bucket_elements(shape.trained_parameters) * recipe.reduce_bytes


def _fully_sharded(shape: ModelShape, recipe: Recipe, spread: Spread) -> Working:
    c, r, split = recipe.compute_bytes, recipe.reduce_bytes, spread.tensor
    outer, block = shape.outer_parameters / split, shape.block_parameters / split
    gathered = 2 * block * c if spread.reshard else shape.layers * block * c
    trains = 0.0 if shape.frozen_parameters else 1.0
    grads = trains * block * (c + r)
    return Working(
        at_loss=outer * c + gathered,
        in_block=outer * c + gathered + 2 * grads,
        at_end=outer * c + trains * outer * (c + r) + (0.0 if spread.reshard else gathered),
    )


def _zero(shape: ModelShape, recipe: Recipe, spread: Spread) -> Working:
    c, bucket = recipe.compute_bytes, bucket_elements(shape.trained_parameters)
    if spread.zero_stage < 3:
        buckets = bucket * c * (2 if spread.zero_stage == 2 else 1)
        return Working(buckets, buckets, buckets)
    buckets = standing_buckets(shape, recipe, spread)
    live = min(shape.parameters, max(LIVE, shape.outer_parameters + 2 * shape.block_parameters)) * c
    return Working(live + buckets, live + buckets, live + buckets)
