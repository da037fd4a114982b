"""Messages of one step: how long they take on their own."""

from __future__ import annotations

from dataclasses import dataclass

from shunter_planner.hardware.fabrics import COLLECTIVE_SHARE, Fabric
from shunter_planner.hardware.gpus import Gpu
from shunter_planner.models.shape import ModelShape
from shunter_planner.recipe import Recipe, Spread

_HOP_IN_NODE_S = 4e-6


@dataclass(frozen=True, slots=True)
class Messages:
    """Seconds on the link alone. `every_pass`: for each micro-batch; `every_step`: once a step."""

    every_pass: float
    every_step: float


def messages(shape: ModelShape, recipe: Recipe, spread: Spread, gpu: Gpu, fabric: Fabric) -> Messages:
    """What each strategy sends.

    Ring collectives move (n-1)/n of the bytes for a gather or a scatter and twice that for a reduction to all. DDP
    reduces all gradients once a step; FSDP and ZeRO 3 gather parameters in the forward and in the backward pass and
    scatter gradients, each micro-batch; ZeRO 1 and 2 scatter gradients and gather parameters once a step.

    Source:
        Patarasuk and Yuan 2009 for rings; arXiv:1910.02054, section 7, for ZeRO's volumes.
    """
    if spread.world == 1:
        return Messages(0.0, 0.0)
    split = spread.tensor
    trained = shape.trained_parameters / split
    gathered = shape.parameters * recipe.compute_bytes / split
    scattered = trained * recipe.reduce_bytes
    ranks = spread.data_ranks * spread.context
    if spread.kind == "ddp" or (spread.kind == "deepspeed" and spread.zero_stage == 0):
        return Messages(0.0, 2 * _ring_s(scattered, ranks, spread, gpu, fabric, shape.layers))
    if spread.kind == "deepspeed" and spread.zero_stage < 3:
        once = _ring_s(scattered, ranks, spread, gpu, fabric, shape.layers)
        once += _ring_s(gathered, ranks, spread, gpu, fabric, 1)
        if spread.zero_stage == 2:  # gradients leave after every micro-batch
            scatter = _ring_s(scattered, ranks, spread, gpu, fabric, shape.layers)
            return Messages(scatter, once - scatter)
        return Messages(0.0, once)
    shards = spread.shards
    gather = _ring_s(gathered, shards, spread, gpu, fabric, shape.layers)
    scatter = _ring_s(scattered, shards, spread, gpu, fabric, shape.layers)
    gathers = 2 if spread.reshard else 1
    between = 0.0
    if spread.kind == "hsdp" and ranks > shards:
        between = 2 * _ring_s(scattered / shards, ranks // shards, spread, gpu, fabric, shape.layers, across=True)
    return Messages(gathers * gather + scatter, between)


def _ring_s(  # noqa: PLR0913  # a collective and the machine it runs on
    size: float, ranks: int, spread: Spread, gpu: Gpu, fabric: Fabric, parts: int, *, across: bool = False
) -> float:
    """A gather or scatter of `size` bytes over `ranks`, in `parts` messages."""
    if ranks <= 1:
        return 0.0
    in_node = ranks <= spread.per_node and not across
    link = gpu.link_gb_per_s if in_node else min(gpu.link_gb_per_s, _between_nodes(spread, fabric, across))
    hops = 0 if in_node else max(1, ranks // (1 if across else spread.per_node))
    latency_s = _HOP_IN_NODE_S * min(ranks, spread.per_node) + hops * fabric.latency_s
    return size * (ranks - 1) / ranks / (link * 1e9 * COLLECTIVE_SHARE) + parts * latency_s


def _between_nodes(spread: Spread, fabric: Fabric, across: bool) -> float:
    """GB/s that one GPU's ring has between nodes: rings in a node take its GPUs' links together."""
    return fabric.gb_per_s_per_gpu * (1 if across else spread.per_node)
