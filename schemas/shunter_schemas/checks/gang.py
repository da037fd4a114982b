"""Resources against themselves, and the strategy against the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shunter_schemas.faults import Fault
from shunter_schemas.job import JobSpec
from shunter_schemas.resources import GpuRange, Resources
from shunter_schemas.strategies import AutoStrategy, DeepSpeedStrategy, FsdpStrategy, HsdpStrategy, OwnStrategy

_NAMED: Final = 6
"""Ways out that a fault names."""


def world_size_of(job: JobSpec) -> int | None:
    """The number of ranks, or None where the document leaves it open or contradicts itself."""
    try:
        return job.world_size()
    except ValueError:
        return None


def ranks_place(job: JobSpec) -> str:
    """The pointer of the field that says how many ranks there are."""
    resources = job.resources
    if resources.cpu_processes is not None:
        return "/resources/cpu_processes"
    return "/resources/gpus" if resources.gpus is not None else "/resources/nodes"


def multiples_around(number: int, of: int) -> str:
    """`14 or 16`: the nearest multiples at or around a number, for the way out."""
    below = number // of * of
    return f"{below} or {below + of}" if below else str(of)


def _ranks(job: JobSpec) -> Iterator[Fault]:
    resources = job.resources
    gpu_fields = [name for name in ("gpus", "nodes", "gpus_per_node") if getattr(resources, name) is not None]
    if resources.cpu_processes is not None:
        for name in (name for name in gpu_fields if name != "nodes"):
            yield Fault(f"/resources/{name}", f"`{name}` is for GPUs, `cpu_processes` for CPUs; give one of them")
    elif not gpu_fields:
        yield Fault("/resources", "the number of ranks is not given: give `gpus`, or `cpu_processes`")
    elif len(gpu_fields) == 1 and gpu_fields[0] != "gpus":
        yield Fault(
            f"/resources/{gpu_fields[0]}",
            f"`{gpu_fields[0]}` alone does not say how many GPUs: give `gpus` too, or both `nodes` and `gpus_per_node`",
        )
    else:
        yield from _gpus_agree(resources)


def _gpus_agree(resources: Resources) -> Iterator[Fault]:
    gpus, nodes, per_node = resources.gpus, resources.nodes, resources.gpus_per_node
    if isinstance(gpus, GpuRange):
        if gpus.min > gpus.max:
            yield Fault("/resources/gpus/min", f"`min` {gpus.min} is above `max` {gpus.max}")
        return
    if gpus is None:
        return
    if nodes is not None and per_node is not None:
        if nodes * per_node != gpus:
            detail = f"{gpus} GPUs are not {nodes} nodes of {per_node}; give {nodes * per_node}, or two of the three"
            yield Fault("/resources/gpus", detail)
        return
    for name, part in (("nodes", nodes), ("gpus_per_node", per_node)):
        if part is not None and gpus % part:
            detail = f"{gpus} GPUs do not divide by `{name}` {part}; use {multiples_around(gpus, part)} GPUs"
            yield Fault("/resources/gpus", detail)


def _gpu_options_on_cpus(job: JobSpec) -> Iterator[Fault]:
    if job.resources.cpu_processes is None:
        return
    places = {
        "/resources/gpu_models": job.resources.gpu_models,
        "/resources/min_gpu_memory_gib": job.resources.min_gpu_memory_gib,
        "/resources/min_cpus_per_gpu": job.resources.min_cpus_per_gpu,
        "/resources/min_memory_gib_per_gpu": job.resources.min_memory_gib_per_gpu,
        "/limits/max_gpu_idle_s": job.limits.max_gpu_idle_s,
        "/recovery/min_gpus": job.recovery.min_gpus,
    }
    for place, value in places.items():
        if value:
            yield Fault(place, "this is about GPUs, and `resources.cpu_processes` asks for CPUs; leave one of them out")


def _batch_norm_on_cpus(job: JobSpec) -> Iterator[Fault]:
    if job.resources.cpu_processes is not None and getattr(job.strategy, "sync_batch_norm", False):
        yield Fault(
            "/strategy/sync_batch_norm", "works on GPUs only, and `resources.cpu_processes` asks for CPUs; use false"
        )


def _strategy_fits_workload(job: JobSpec) -> Iterator[Fault]:
    if isinstance(job.strategy, OwnStrategy) and job.workload.kind == "training":
        yield Fault("/strategy/kind", "`own` is for scripts; a `training` is spread by our trainer: use ddp")
    if isinstance(job.strategy, AutoStrategy) and job.workload.kind == "script":
        yield Fault("/strategy/kind", "`auto` is for `training`; a script distributes itself: use own")


def _shards_fit(job: JobSpec) -> Iterator[Fault]:
    strategy, gpus = job.strategy, job.resources.gpus
    if not isinstance(strategy, HsdpStrategy) or strategy.shard_size == "node":
        return
    size, place = strategy.shard_size, ranks_place(job)
    if isinstance(gpus, GpuRange):
        if gpus.min <= gpus.max < -(-gpus.min // size) * size:
            detail = f"no number of ranks from {gpus.min} to {gpus.max} ({place}) divides into groups of {size}"
            yield Fault("/strategy/shard_size", f"{detail}; use {multiples_around(gpus.min, size)} ranks")
        return
    world_size = world_size_of(job)
    if world_size is None or world_size % size == 0:
        return
    detail = f"{world_size} ranks ({place}) do not divide into groups of {size}"
    groups = [str(part) for part in range(2, world_size + 1) if world_size % part == 0]
    way_out = f", or groups of {' or '.join(groups[:_NAMED])}" if groups else ""
    yield Fault("/strategy/shard_size", f"{detail}; use {multiples_around(world_size, size)} ranks{way_out}")


def _resharding_divides(job: JobSpec) -> Iterator[Fault]:
    strategy = job.strategy
    if not isinstance(strategy, FsdpStrategy | HsdpStrategy) or isinstance(strategy.reshard_after_forward, bool):
        return
    over = strategy.reshard_after_forward
    if job.workload.kind == "script":
        detail = f"{over} is for `training`; accelerate, which brings this to a script, takes true or false"
        yield Fault("/strategy/reshard_after_forward", f"{detail}; use true")
        return
    shards, place = _shards_of(job, strategy)
    if shards is not None and shards % over:
        divisors = [str(part) for part in range(2, shards + 1) if shards % part == 0]
        way_out = f"use {' or '.join(divisors[:_NAMED])}, or true" if divisors else "use true"
        detail = f"{over} does not divide the {shards} ranks over which parameters are split ({place})"
        yield Fault("/strategy/reshard_after_forward", f"{detail}; {way_out}")


def _shards_of(job: JobSpec, strategy: FsdpStrategy | HsdpStrategy) -> tuple[int | None, str]:
    """Over how many ranks parameters are split, and the place that says so; None where the document leaves it open."""
    if isinstance(strategy, FsdpStrategy):
        return world_size_of(job), ranks_place(job)
    if strategy.shard_size != "node":
        return strategy.shard_size, "/strategy/shard_size"
    resources, world_size = job.resources, world_size_of(job)
    if resources.cpu_processes is not None:
        return resources.cpu_processes, ranks_place(job)
    if resources.gpus_per_node is None and resources.nodes is not None and world_size is not None:
        return world_size // resources.nodes, "/resources/nodes"
    return resources.gpus_per_node, "/resources/gpus_per_node"


def _deepspeed_offload(job: JobSpec) -> Iterator[Fault]:
    strategy = job.strategy
    if not isinstance(strategy, DeepSpeedStrategy):
        return
    if strategy.offload_parameters != "none" and strategy.zero_stage != 3:
        detail = f"parameters are split at `zero_stage` 3 only, and it is {strategy.zero_stage}; use 3 or `none`"
        yield Fault("/strategy/offload_parameters", detail)
    if strategy.offload_optimizer != "none" and strategy.zero_stage == 0:
        yield Fault("/strategy/offload_optimizer", "needs `zero_stage` 1 or more, and it is 0; use 1 or `none`")


def _smaller_gangs(job: JobSpec) -> Iterator[Fault]:
    least, world_size = job.recovery.min_gpus, world_size_of(job)
    if least is not None and world_size is not None and least > world_size:
        detail = f"`min_gpus` {least} is above the {world_size} ranks of {ranks_place(job)}"
        yield Fault("/recovery/min_gpus", f"{detail}; use {world_size} or less")


CHECKS = (
    _ranks,
    _gpu_options_on_cpus,
    _batch_norm_on_cpus,
    _strategy_fits_workload,
    _shards_fit,
    _resharding_divides,
    _deepspeed_offload,
    _smaller_gangs,
)
