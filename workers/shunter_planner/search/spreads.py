"""Which strategies are tried on a gang, from the simplest to the most involved, and the document that asks for each."""

from __future__ import annotations

from typing import Any

from shunter_schemas.job import JobSpec
from shunter_schemas.strategies import DdpStrategy, DeepSpeedStrategy, FsdpStrategy, HsdpStrategy

from shunter_planner.recipe import Spread

Document = dict[str, Any]


def spreads_of(document: JobSpec, world: int, per_node: int) -> list[tuple[Spread, Document]]:
    """What the document's strategy is on this gang; under `auto` all that could be chosen, the simplest first."""
    strategy = document.strategy
    named = strategy.model_dump(mode="json")
    if isinstance(strategy, DdpStrategy):
        return [(Spread("ddp", world, per_node), named)]
    if isinstance(strategy, FsdpStrategy):
        return [(_sharded("fsdp", world, per_node, world, strategy), named)]
    if isinstance(strategy, HsdpStrategy):
        size = per_node if strategy.shard_size == "node" else strategy.shard_size
        return [(_sharded("hsdp", world, per_node, min(size, world), strategy), named)]
    if isinstance(strategy, DeepSpeedStrategy):
        return [(_deepspeed(strategy, world, per_node), named)]
    return automatic_spreads(world, per_node) if strategy.kind == "auto" else []


def is_offloaded(spread: Spread) -> bool:
    """Whether a part of the state lies in the host's memory: only where nothing else fits."""
    return spread.offload_optimizer or spread.offload_parameters


def automatic_spreads(world: int, per_node: int) -> list[tuple[Spread, Document]]:
    """What `auto` chooses from, the simplest first."""
    found: list[tuple[Spread, Document]] = [(Spread("ddp", world, per_node), {"kind": "ddp"})]
    if world > 1:
        found.append((Spread("fsdp", world, per_node, shards=world), {"kind": "fsdp"}))
    if world > per_node > 1:
        found.append((Spread("hsdp", world, per_node, shards=per_node), {"kind": "hsdp", "shard_size": "node"}))
    offloaded: Document = {
        "kind": "deepspeed",
        "zero_stage": 3,
        "offload_optimizer": "cpu",
        "offload_parameters": "cpu",
    }
    spread = Spread(
        "deepspeed", world, per_node, shards=world, zero_stage=3, offload_optimizer=True, offload_parameters=True
    )
    return [*found, (spread, offloaded)]


def _sharded(kind: Any, world: int, per_node: int, shards: int, strategy: FsdpStrategy | HsdpStrategy) -> Spread:
    offloads = strategy.offload == "cpu"
    return Spread(
        kind,
        world,
        per_node,
        shards=shards,
        offload_optimizer=offloads,
        offload_parameters=offloads,
        reshard=strategy.reshard_after_forward is not False,
    )


def _deepspeed(strategy: DeepSpeedStrategy, world: int, per_node: int) -> Spread:
    return Spread(
        "deepspeed",
        world,
        per_node,
        shards=world if strategy.zero_stage == 3 else 1,
        zero_stage=strategy.zero_stage,
        offload_optimizer=strategy.offload_optimizer == "cpu",
        offload_parameters=strategy.offload_parameters == "cpu",
    )
