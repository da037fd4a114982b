"""The work of one step on one rank: operations of matrix products and of attention, bytes of everything else."""

from __future__ import annotations

from dataclasses import dataclass

from shunter_planner.models.shape import ModelShape
from shunter_planner.recipe import Checkpointing, Recipe


@dataclass(frozen=True, slots=True)
class Work:
    """Of one token: operations (a multiplication and an addition are two) and bytes through the GPU's memory."""

    products: float
    attention: float
    moved_bytes: float


def work_per_token(shape: ModelShape, recipe: Recipe, checkpointing: Checkpointing, positions: int) -> Work:
    """Forward, backward, and what is computed again.

    Products: 2 a parameter forward, 2 backward for the input, 2 for the parameter where it is trained. Attention: 4 *
    heads * width * positions a layer forward, half of it under a causal mask, and 2.5 times as much backward, since
    fused attention computes its scores again. Bytes: by kind of kernel, each tensor that is read or written once.

    Source:
        Kaplan et al., arXiv:2001.08361, section 2.1; FlashAttention-2, arXiv:2307.08691, section 4.1.
    """
    multiplied = shape.active_parameters - shape.lookup_parameters
    trained = multiplied if not shape.frozen_parameters else shape.trained_parameters
    blocks = max(0.0, multiplied - shape.vocab * shape.hidden * (1 if shape.loss_per_token else 0))
    again = {"none": 0.0, "selective": 0.0, "selective_alternate": 0.5, "full": 1.0}[checkpointing]
    products = 2 * multiplied + 2 * multiplied + 2 * trained + again * 2 * blocks
    forward = 4 * shape.layers * shape.query_width * positions * (0.5 if shape.causal else 1.0)
    attention = forward * (3.5 + (1.0 if checkpointing == "full" else 0.0))
    e = recipe.compute_bytes
    block = e * _numbers_moved(shape)
    repeats = 3.0 + (0.0 if checkpointing == "none" else 1.0)
    logits = shape.vocab * {"eager": 34.0, "compiled": 8.0 * e, "fused": 5.0 * e}[recipe.loss]
    return Work(products, attention, shape.layers * block * repeats + (logits if shape.loss_per_token else 0.0))


def counted_flops_per_token(shape: ModelShape, positions: int) -> float:
    """Operations as MFU counts them: nothing twice, attention without regard to masks (see
    `shunter_trainer.models.dimensions`)."""
    multiplied = shape.active_parameters - shape.lookup_parameters
    frozen = min(shape.frozen_parameters, multiplied)
    return 6 * (multiplied - frozen) + 4 * frozen + 12 * shape.layers * shape.query_width * positions


def _numbers_moved(shape: ModelShape) -> float:
    """Numbers that the forward pass of one block reads and writes outside of products and attention.

    Two norms read and write the stream, two sums read it twice and write it once; rotations read and write queries and
    keys; an activation reads and writes the inner width, a gate once more with its product.
    """
    h = shape.hidden
    norms = 2 * (4 if shape.composite_norms else 2) * h
    sums = 2 * 3 * h
    rotations = 4 * (shape.query_width + shape.kv_width) if shape.gated else 0
    inner = (5 if shape.gated else 2) * shape.ffn
    return norms + sums + rotations + inner
