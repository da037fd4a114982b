"""Predicted memory against what torch itself would allocate, without a GPU: fake tensors and a fake process group.

    python benchmarks/planner/oracle.py [--shapes N] [--json]

Each shape is a training of our `transformer`, brought into its distributed form by the trainer's own strategy over a
process group that sends nothing, and taken through two optimizer steps on tensors without memory, while
`torch.distributed._tools` counts every storage. Its peak is compared with the planner's, without what no tensor holds
(fragmentation, the driver's context). Prints the parts of both.

Norms are the one thing that is replaced: on CPUs torch takes them apart into operations that keep fp32 copies, where
on GPUs one kernel keeps its input and a number for each position.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from shunter_planner.memory.estimate import GIB, Memory, peak_memory
from shunter_planner.models.document import Known, model_of
from shunter_planner.recipe import Cut, recipe_of
from shunter_planner.search.spreads import spreads_of
from shunter_schemas.job import JobSpec, load_job
from shunter_trainer.gang import Gang
from shunter_trainer.models.build import build_model
from shunter_trainer.models.objective import Objective
from shunter_trainer.optim.optimizers import optimizer_maker
from shunter_trainer.strategies import strategy_for
from shunter_trainer.strategies.base import Parts


class Shape(NamedTuple):
    """A training that is counted."""

    name: str
    strategy: dict[str, Any]
    world: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    positions: int
    micro: int
    checkpointing: str = "none"
    precision: str = "bf16"


_FSDP: Final = {"kind": "fsdp"}
_HSDP: Final = {"kind": "hsdp", "shard_size": 4}
_DDP: Final = {"kind": "ddp"}
SHAPES: Final = (
    Shape("narrow, fsdp over 8", _FSDP, 8, 1024, 6, 16, 16, 2816, 32000, 2048, 4),
    Shape("wide, fsdp over 8", _FSDP, 8, 2048, 4, 16, 16, 8192, 32000, 4096, 2),
    Shape("wide, selective", _FSDP, 8, 2048, 4, 16, 16, 8192, 32000, 4096, 4, "selective"),
    Shape("wide, full", _FSDP, 8, 2048, 4, 16, 16, 8192, 32000, 4096, 8, "full"),
    Shape("large vocabulary", _FSDP, 16, 2048, 2, 16, 16, 8192, 128256, 4096, 2, "full"),
    Shape("long sequence", _FSDP, 8, 1024, 4, 8, 8, 4096, 32000, 32768, 1, "full"),
    Shape("hsdp, groups of 4", _HSDP, 8, 2048, 4, 16, 16, 8192, 32000, 2048, 4),
    Shape("ddp, fp32", _DDP, 1, 1024, 4, 16, 16, 4096, 32000, 1024, 4, "none", "fp32"),
    Shape("ddp, bf16", _DDP, 1, 1024, 4, 16, 16, 4096, 32000, 1024, 8),
    Shape("fsdp, fp32", _FSDP, 4, 1024, 4, 16, 16, 4096, 32000, 1024, 8, "none", "fp32"),
)


class _FusedNorm(torch.autograd.Function):
    """RMSNorm with the memory of the kernel on GPUs; the values do not matter here."""

    @staticmethod
    def forward(ctx: Any, x_BTD: torch.Tensor, gain_D: torch.Tensor) -> torch.Tensor:
        scale_BT = torch.empty(x_BTD.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(x_BTD, gain_D, scale_BT)
        return torch.empty_like(x_BTD)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x_BTD, gain_D, _ = ctx.saved_tensors
        return torch.empty_like(x_BTD), torch.empty_like(gain_D)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="only the first so many")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = []
    for shape in SHAPES[: asked.shapes]:
        counted, predicted = counted_bytes(shape), predicted_memory(shape)
        tensors = _of_tensors(predicted)
        found.append({"name": shape.name, "counted_gib": counted["Total"] / GIB, "predicted_gib": tensors / GIB})
        if not asked.json:
            parts = ", ".join(f"{name} {size / GIB:.2f}" for name, size in counted.items() if size > 0.005 * GIB)
            print(f"{shape.name}: {counted['Total'] / GIB:.2f} counted, {tensors / GIB:.2f} predicted", end="")
            print(f" ({tensors / counted['Total'] - 1:+.1%})\n    counted: {parts}\n    predicted: {_words(predicted)}")
    if asked.json:
        print(json.dumps(found))


def document(shape: Shape) -> JobSpec:
    """The shape as a job."""
    model = {
        "kind": "transformer",
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "ffn": shape.ffn,
        "vocab": shape.vocab,
        "context": shape.positions,
    }
    workload = {
        "kind": "training",
        "model": model,
        "data": {"kind": "synthetic", "sequence_length": shape.positions},
        "batch": {"global_size": shape.micro * shape.world, "micro_size": shape.micro},
        "duration": {"steps": 2},
        "precision": shape.precision,
        "activation_checkpointing": shape.checkpointing,
    }
    resources = {"cpu_processes": shape.world}
    return load_job(
        {"version": "1", "name": "o", "workload": workload, "strategy": shape.strategy, "resources": resources}
    )


def predicted_memory(shape: Shape) -> Memory:
    """As the planner sees it."""
    job = document(shape)
    known = model_of(job.workload)
    assert isinstance(known, Known)
    ((spread, _),) = spreads_of(job, shape.world, shape.world)
    workload: Any = job.workload
    cut = Cut(shape.micro, 1, workload.activation_checkpointing)
    return peak_memory(known.shape, known.positions, recipe_of(workload), spread, cut, on_gpu=False)


def counted_bytes(shape: Shape) -> dict[str, int]:
    """Bytes at the peak by kind of tensor, and their `Total`."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    job = document(shape)
    workload: Any = job.workload
    built, sharded = build_model(workload), shape.strategy["kind"] != "ddp"
    gang = Gang(0, shape.world, 0, shape.world, 0, 1, torch.device("cpu"))
    strategy: Any = strategy_for(job.strategy)
    with _fake_group(shape.world):
        if sharded:  # a mesh reads its own ranks, which fake tensors do not hold
            mesh = strategy.make_mesh(gang)
            strategy.make_mesh = lambda _: mesh
        return _counted(shape, strategy, FakeTensorMode(allow_non_fake_inputs=True), built, gang)


def _counted(shape: Shape, strategy: Any, fake: Any, built: Any, gang: Gang) -> dict[str, int]:
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed._tools.mem_tracker import MemTracker

    workload: Any = document(shape).workload
    for module in built.module.modules():
        if isinstance(module, torch.nn.RMSNorm):
            vars(module)["forward"] = partial(_norm, module)
    sharded = shape.strategy["kind"] != "ddp"
    with fake:
        strategy.prepare(
            Parts(
                module=built.module,
                objective=Objective(None, built.accepts, own_labels=True),
                make_optimizer=optimizer_maker(workload.optimizer),
                keeps_groups=False,
                compute_dtype={"bf16": torch.bfloat16, "fp32": torch.float32}[shape.precision],
                reduce_dtype=torch.float32,
                gang=gang,
                fill=lambda module, names: None,
            )
        )
        ids = torch.zeros((shape.micro, shape.positions), dtype=torch.int64)
        tracker: Any = FSDPMemTracker(strategy.module, strategy.optimizer) if sharded else MemTracker()
        if not sharded:
            tracker.track_external(strategy.module, strategy.optimizer)
        for _ in range(2):  # the optimizer makes its state in the first step
            tracker.reset_mod_stats()
            with tracker:
                strategy.backward(strategy.compute({"input_ids": ids, "labels": ids}))
                strategy.step(None, None, measured=False)
        ((_, snapshot),) = tracker.get_tracker_snapshot("peak").items()
    return {str(getattr(kind, "value", kind)): int(size) for kind, size in snapshot.items()}


def _norm(module: torch.nn.RMSNorm, x_BTD: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = _FusedNorm.apply(x_BTD, module.weight)  # type: ignore[no-untyped-call]
    return made


@contextmanager
def _fake_group(world: int) -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def _of_tensors(memory: Memory) -> float:
    """Bytes that tensors take. Where the peak is at the loss, there are no gradients yet in a step of one micro-batch;
    the planner counts their place all the same, which the allocator keeps from the step before."""
    tensors = memory.total - memory.fragmentation - memory.runtime
    return tensors - (memory.gradients if memory.logits else 0.0)


def _words(memory: Memory) -> str:
    return ", ".join(f"{name} {size:.2f}" for name, size in memory.parts_gib().items() if size >= 0.005)


if __name__ == "__main__":
    main()
