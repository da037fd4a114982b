"""Activations: what a block leaves for its backward pass, and what it needs for a moment while that runs."""

from __future__ import annotations

from typing import Final

from shunter_planner.models.shape import ModelShape
from shunter_planner.recipe import Checkpointing, Recipe

_LSE_BYTES: Final = 4
"""The logarithm of a row's sum, which fused attention keeps of each head and position."""


def kept_per_token(
    shape: ModelShape, recipe: Recipe, checkpointing: Checkpointing, positions: int, *, autocast: bool
) -> float:
    """Bytes that one block keeps of one token from its forward to its backward pass.

    The tensors are those that autograd saves: inputs of both norms (the residual stream, fp32 under autocast), inputs
    of the matrix products, what fused attention keeps, and of a gated feed-forward part its two halves, the activation
    and their product.

    Source:
        Korthikanti et al., arXiv:2205.05198, section 4, recounted for fused attention (no scores), SwiGLU and
        grouped-query attention.
    """
    e, h = recipe.compute_bytes, shape.hidden
    q, kv, ffn = shape.query_width, shape.kv_width, shape.ffn
    stream = 4 if autocast else e
    attended = _LSE_BYTES * shape.heads
    if checkpointing == "full":
        return stream * h
    if checkpointing == "selective":
        products = 2 * q + 2 * kv + 2 * h + (2 if shape.gated else 1) * ffn
        return stream * h + e * products + attended + _adapters(shape, recipe)
    if checkpointing == "selective_alternate":
        return stream * h + e * (2 * q + kv + h + ffn) + attended
    inner = e * (4 if shape.gated else 2) * ffn
    kept = 2 * stream * h + 2 * e * h + e * (2 * q + 2 * kv) + inner + attended
    return kept + _by_implementation(shape, e, positions) + _adapters(shape, recipe)


def transient_per_token(
    shape: ModelShape, recipe: Recipe, checkpointing: Checkpointing, positions: int, *, autocast: bool
) -> float:
    """Bytes of one token that the block needs for a moment whose backward pass runs: what it computes again, and the
    gradients of its widest part."""
    again = 0.0
    if checkpointing != "none":
        kept = kept_per_token(shape, recipe, checkpointing, positions, autocast=autocast)
        again = kept_per_token(shape, recipe, "none", positions, autocast=autocast) - kept
    widest = recipe.compute_bytes * ((3 if shape.gated else 2) * shape.ffn + shape.hidden)
    return again + widest


def outside_per_token(shape: ModelShape, recipe: Recipe, *, autocast: bool) -> float:
    """Bytes of one token outside the blocks: what the last norm takes and gives, and the ids."""
    stream = 4 if autocast else recipe.compute_bytes
    return (stream + recipe.compute_bytes) * shape.hidden + 16


def logits_per_position(shape: ModelShape, recipe: Recipe) -> float:
    """Bytes of one position's logits at their worst moment, the beginning of the backward pass.

    `eager`: logarithms of the probabilities, their gradient and that of the logits, all fp32. `compiled`: logits and
    their gradient in the type of the products. `fused`: the gradient takes the place of the logits.
    """
    e = recipe.compute_bytes
    return shape.vocab * {"eager": 12, "compiled": 2 * e, "fused": e}[recipe.loss]


def _by_implementation(shape: ModelShape, e: int, positions: int) -> float:
    """What less fused implementations keep besides."""
    extra = 2 * 4 * shape.hidden if shape.composite_norms else 0  # each norm an fp32 copy
    if shape.eager_attention:
        extra += shape.heads * positions * (4 + 2 * e)  # scores in fp32 and twice in the type of the products
    if shape.dropout:
        extra += 2 * shape.hidden  # masks, a byte each
    if shape.idle_parameters:
        extra += 4 * e * shape.hidden  # tokens on their way to two experts and back
    return extra


def _adapters(shape: ModelShape, recipe: Recipe) -> float:
    return recipe.compute_bytes * shape.adapter_width
