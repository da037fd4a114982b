"""One optimizer step as a person writes it by hand, for each strategy: what the trainer is measured against.

`bare_step(name, …)` gives a function of a batch, a norm to clip to and a learning rate. Models return `{"loss"}`.
DeepSpeed gets the document that the trainer would give it, so that only the loops differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from shunter_schemas.deepspeed.training import TrainingFacts, training_config
from shunter_schemas.strategies import DdpStrategy, DeepSpeedStrategy, FsdpStrategy, HsdpStrategy
from shunter_trainer.gang import Gang
from shunter_trainer.models.recompute import blocks
from shunter_trainer.strategies.names import unsaved_buffers
from torch import Tensor, nn

Batch = Mapping[str, Tensor]
Step = Callable[[Batch, float | None, float], None]
MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]

STRATEGIES: Mapping[str, Any] = {
    "ddp": DdpStrategy(kind="ddp"),
    "fsdp": FsdpStrategy(kind="fsdp"),
    "hsdp": HsdpStrategy(kind="hsdp"),
    "zero-0": DeepSpeedStrategy(kind="deepspeed", zero_stage=0),
    "zero-1": DeepSpeedStrategy(kind="deepspeed", zero_stage=1),
    "zero-2": DeepSpeedStrategy(kind="deepspeed", zero_stage=2),
    "zero-3": DeepSpeedStrategy(kind="deepspeed", zero_stage=3),
}


def bare_step(name: str, module: nn.Module, make_optimizer: MakeOptimizer, gang: Gang, micro_size: int) -> Step:
    """The step of a strategy of `STRATEGIES`. `micro_size`: samples of one rank and step. Every rank calls it."""
    kind = STRATEGIES[name].kind
    if kind == "deepspeed":
        return _deepspeed(STRATEGIES[name], module, make_optimizer, gang, micro_size)
    return _torch(_PREPARED[kind](module, gang), make_optimizer)


def accelerate_step(name: str, module: nn.Module, make_optimizer: MakeOptimizer) -> Step:
    """The same by `accelerate`, for `ddp` and `fsdp`."""
    from accelerate import Accelerator
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
    from torch.distributed.fsdp import FSDPModule

    plugin = None
    if name == "fsdp":
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="transformer_based_wrap",
            transformer_cls_names_to_wrap=[type(block).__name__ for block in blocks(module)[:1]],
        )
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    if plugin is not None:
        # Without a GPU it says MULTI_CPU, forgets the plugin and wraps in DDP: another strategy, and no comparison.
        accelerator.state._shared_state.update(distributed_type=DistributedType.FSDP, fsdp_plugin=plugin)
    model, optimizer = accelerator.prepare(module, make_optimizer(module))
    if plugin is not None:
        assert isinstance(accelerator.unwrap_model(model), FSDPModule)

    def step(batch: Batch, clip_norm: float | None, lr: float) -> None:
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        if clip_norm is not None:
            accelerator.clip_grad_norm_(model.parameters(), clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        optimizer.zero_grad()

    return step


def _torch(model: nn.Module, make_optimizer: MakeOptimizer) -> Step:
    optimizer = make_optimizer(model)

    def step(batch: Batch, clip_norm: float | None, lr: float) -> None:
        loss = model(**batch)["loss"]
        loss.backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        optimizer.zero_grad()

    return step


def _ddp(module: nn.Module, gang: Gang) -> nn.Module:
    if gang.world_size == 1:
        return module
    runner: Any = nn.parallel.DistributedDataParallel
    runner._set_params_and_buffers_to_ignore_for_model(module, unsaved_buffers(module))
    return cast(nn.Module, runner(module, gradient_as_bucket_view=True))


def _fsdp(module: nn.Module, gang: Gang) -> nn.Module:
    return _sharded(module, gang, {"shard": gang.world_size})


def _hsdp(module: nn.Module, gang: Gang) -> nn.Module:
    return _sharded(module, gang, {"replicate": gang.num_nodes, "shard": gang.local_world_size})


def _sharded(module: nn.Module, gang: Gang, form: Mapping[str, int]) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(gang.device.type, tuple(form.values()), mesh_dim_names=tuple(form))
    for block in blocks(module):
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


def _deepspeed(
    document: DeepSpeedStrategy, module: nn.Module, make_optimizer: MakeOptimizer, gang: Gang, micro_size: int
) -> Step:
    from shunter_trainer.strategies.deepspeed.library import load_deepspeed, make_engine

    library = load_deepspeed(gang, {})
    parameters = sum(parameter.numel() for parameter in module.parameters())
    on_gpus = gang.device.type == "cuda"
    facts = TrainingFacts(gang.world_size, micro_size, 1, "fp32", "fp32", parameters, on_gpus=on_gpus)
    clips: dict[float | None, Any] = {}

    def engine_for(clip_norm: float | None) -> Any:
        # DeepSpeed clips by its own document, so there is an engine for each norm.
        if clip_norm not in clips:
            config = {**training_config(document, facts), "gradient_clipping": clip_norm or 0.0}
            clips[clip_norm] = make_engine(library, module, make_optimizer(module), config)
        return clips[clip_norm]

    def step(batch: Batch, clip_norm: float | None, lr: float) -> None:
        engine = engine_for(clip_norm)
        loss = engine(**batch)["loss"]
        engine.backward(loss)
        for group in engine.optimizer.param_groups:
            group["lr"] = lr
        engine.step()

    return step


_PREPARED: Mapping[str, Callable[[nn.Module, Gang], nn.Module]] = {"ddp": _ddp, "fsdp": _fsdp, "hsdp": _hsdp}
