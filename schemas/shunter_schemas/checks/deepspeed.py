"""`strategy` of kind `deepspeed`: its raw document against itself, against the workload and the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from shunter_schemas.batching import batch_plan
from shunter_schemas.checks.gang import ranks_place, world_size_of
from shunter_schemas.deepspeed.document import document_findings
from shunter_schemas.deepspeed.file import Program, document_faults
from shunter_schemas.deepspeed.reading import AUTO, Setting, section
from shunter_schemas.deepspeed.tables import SCHEDULERS, TRAINING_OPTIMIZERS, TRAINING_PARAMETERS
from shunter_schemas.deepspeed.training import zero_section
from shunter_schemas.faults import Fault, pointer
from shunter_schemas.job import JobSpec
from shunter_schemas.nearest import did_you_mean
from shunter_schemas.script import ScriptWorkload
from shunter_schemas.strategies import DeepSpeedStrategy
from shunter_schemas.training import TrainingWorkload

_CONFIG = "/strategy/config"


def _document(job: JobSpec) -> Iterator[Fault]:
    strategy, workload = job.strategy, job.workload
    if not isinstance(strategy, DeepSpeedStrategy):
        return
    document = _merged(strategy)
    if isinstance(workload, ScriptWorkload):
        faults = document_faults(document, program_of(job, "the configuration"), _CONFIG)
    else:
        # The trainer's own optimizers go through ZeRO as they are.
        document.setdefault("zero_allow_untested_optimizer", True)
        setting = Setting(world_size_of(job), ranks_place(job), takes_auto=False)
        findings = document_findings(document, setting)
        faults = (Fault(_CONFIG + pointer(finding.path), finding.detail) for finding in findings)
    for fault in faults:
        yield Fault(fault.pointer, _by_fields(fault.detail, strategy))


def program_of(job: JobSpec, name: str) -> Program:
    """What is known of a script that reads the DeepSpeed document of this name."""
    workload = job.workload
    if not isinstance(workload, ScriptWorkload):
        return Program(name, (), "torch", world_size_of(job), ranks_place(job))
    return Program(name, workload.arguments, workload.launcher, world_size_of(job), ranks_place(job))


def _owned(job: JobSpec) -> Iterator[Fault]:
    """What the job document decides may be repeated, not contradicted."""
    strategy, workload = job.strategy, job.workload
    if not isinstance(strategy, DeepSpeedStrategy):
        return
    of_training = _owned_by_training(job, workload) if isinstance(workload, TrainingWorkload) else ()
    for owned in (*of_training, *_owned_by_strategy(strategy)):
        said = section(strategy.config, *owned.path[:-1]).get(owned.path[-1])
        is_no_device = owned.path[-1] == "device" and said not in ("none", "cpu", "nvme")  # told by the rules
        if said not in (None, AUTO) and said != owned.value and not is_no_device:
            yield Fault(_CONFIG + pointer(owned.path), _contradiction(said, owned))


def _not_for_trainings(job: JobSpec) -> Iterator[Fault]:
    if not (isinstance(job.strategy, DeepSpeedStrategy) and isinstance(job.workload, TrainingWorkload)):
        return
    for path, instead in _NOT_FOR_TRAININGS.items():
        *parents, name = path.split(".")
        value = section(job.strategy.config, *parents).get(name)
        if value not in (None, False, "none", _IDLE.get(path)):
            yield Fault(f"{_CONFIG}/{path.replace('.', '/')}", f"a `training` does not take it: {instead}")
    if job.workload.dtypes.parameters != "fp32" and job.strategy.zero_stage > 0:
        detail = f"ZeRO (/strategy/zero_stage {job.strategy.zero_stage}) keeps parameters in fp32 and computes in "
        yield Fault("/workload/precision/parameters", f"{detail}`compute`; use fp32")


def _learning(job: JobSpec) -> Iterator[Fault]:
    if not (isinstance(job.strategy, DeepSpeedStrategy) and isinstance(job.workload, TrainingWorkload)):
        return
    config = job.strategy.config
    for name, field in (("optimizer", "optimizer"), ("scheduler", "schedule")):
        if name in config and field in job.workload.model_fields_set:
            detail = f"`/workload/{field}` is given too, and one of them decides; leave one out"
            yield Fault(f"{_CONFIG}/{name}", detail)
    optimizer, scheduler = (section(config, name).get("type") for name in ("optimizer", "scheduler"))
    if isinstance(optimizer, str) and optimizer.lower() not in TRAINING_OPTIMIZERS:
        known = ", ".join(TRAINING_OPTIMIZERS.values())
        detail = f"a `training` takes {known} from here; for another one, use `/workload/optimizer` of kind python"
        yield Fault(f"{_CONFIG}/optimizer/type", detail)
    elif isinstance(optimizer, str):
        yield from _parameters(optimizer, section(config, "optimizer", "params"))
    if isinstance(scheduler, str) and scheduler not in SCHEDULERS:
        detail = f"a `training` takes {', '.join(SCHEDULERS)} from here; for another one, use `/workload/schedule`"
        yield Fault(f"{_CONFIG}/scheduler/type", detail)


def _parameters(optimizer: str, params: Mapping[str, Any]) -> Iterator[Fault]:
    known = TRAINING_PARAMETERS.get(optimizer.lower())
    for name in params if known else ():
        if known and name not in known and name != "max_grad_norm":
            hint = did_you_mean(name, known) or f"; known: {', '.join(sorted(known))}"
            yield Fault(f"{_CONFIG}/optimizer/params/{name}", f"`{optimizer}` takes no such parameter{hint}")


class _Owned(NamedTuple):
    path: tuple[str, ...]
    place: str
    value: Any


def _contradiction(said: Any, owned: _Owned) -> str:
    shown = _shown(owned.value)
    if isinstance(said, str) and said == shown:
        return f"must stand without quotes; or leave it out here, it follows from {owned.place} {shown}"
    if said == "nvme":
        instead = "use cpu, or a script with a DeepSpeed file of its own (strategy own with `deepspeed_file`)"
        return f"nvme contradicts {owned.place}, which takes none and cpu; {instead}"
    detail = f"{_shown(said)} contradicts {owned.place}, which says {shown}"
    return f"{detail}; leave it out here, it follows from there"


def _owned_by_strategy(strategy: DeepSpeedStrategy) -> Iterator[_Owned]:
    zero = "zero_optimization"
    yield _Owned((zero, "stage"), "/strategy/zero_stage", strategy.zero_stage)
    yield _Owned((zero, "offload_optimizer", "device"), "/strategy/offload_optimizer", strategy.offload_optimizer)
    yield _Owned((zero, "offload_param", "device"), "/strategy/offload_parameters", strategy.offload_parameters)


def _owned_by_training(job: JobSpec, training: TrainingWorkload) -> Iterator[_Owned]:
    dtypes = training.dtypes
    yield _Owned(("train_batch_size",), "/workload/batch/global_size", training.batch.global_size)
    yield from _owned_sizes(job, training)
    yield _Owned(("gradient_clipping",), "/workload/gradient_clip_norm", training.gradient_clip_norm or 0.0)
    for name in ("fp16", "bf16"):
        yield _Owned((name, "enabled"), f"/workload/precision ({dtypes.compute})", dtypes.compute == name)
    for path in (("communication_data_type",), ("data_types", "grad_accum_dtype")):
        yield _Owned(path, "/workload/precision (reduce)", dtypes.reduce)


def _owned_sizes(job: JobSpec, training: TrainingWorkload) -> Iterator[_Owned]:
    world_size = world_size_of(job)
    if world_size is None:
        return
    try:
        plan = batch_plan(training, world_size)
    except ValueError:
        return  # told by the checks of batches
    yield _Owned(("train_micro_batch_size_per_gpu",), "/workload/batch/micro_size", plan.micro_size)
    place = f"/workload/batch ({training.batch.global_size} samples on {world_size} ranks)"
    yield _Owned(("gradient_accumulation_steps",), place, plan.accumulation)


def _merged(strategy: DeepSpeedStrategy) -> dict[str, Any]:
    """The raw document with what the strategy's fields say: which options and optimizers fit depends on it.

    Offload that does not fit the stage is told by the strategy's own checks, and left out here.
    """
    if not isinstance(strategy.config.get("zero_optimization", {}), Mapping):
        return dict(strategy.config)
    stage = strategy.zero_stage
    fitting = {
        "offload_optimizer": strategy.offload_optimizer if stage > 0 else "none",
        "offload_parameters": strategy.offload_parameters if stage == 3 else "none",
    }
    return {**strategy.config, "zero_optimization": zero_section(strategy.model_copy(update=fitting))}


def _by_fields(detail: str, strategy: DeepSpeedStrategy) -> str:
    """The strategy's own fields by name, where the raw document does not repeat them."""
    zero = section(strategy.config, "zero_optimization")
    for name, place in (("stage", "/strategy/zero_stage"), ("offload_optimizer", "/strategy/offload_optimizer")):
        if name not in zero:
            detail = detail.replace(f"`zero_optimization.{name}`", place)
    return detail


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_CHECKPOINTS = "checkpoints are the trainer's own, see `workload.checkpoint`"
_ONE_KIND = "it is spread over ranks by ZeRO alone"
_NOT_FOR_TRAININGS = {
    "checkpoint": _CHECKPOINTS,
    "checkpoint_writer": _CHECKPOINTS,
    "datastates_ckpt": _CHECKPOINTS,
    "torch_autocast": "precision is `workload.precision`",
    "data_types.param_dtype": "precision is `workload.precision`",
    "fp16.fp16_master_weights_and_grads": "its checkpoints hold fp32 weights",
    "bf16.bf16_master_weights_and_grads": "its checkpoints hold fp32 weights",
    "bf16.bf16_optimizer_states": "its checkpoints hold fp32 state",
    "fp16.auto_cast": "the trainer casts inputs itself",
    "tensor_parallel": _ONE_KIND,
    "expert_parallel": _ONE_KIND,
    "sequence_parallel_size": _ONE_KIND,
    "data_parallel_size": _ONE_KIND,
    "pipeline": _ONE_KIND,
    "managed_gradient_accumulation": "accumulation follows from `workload.batch`",
    "gradient_allreduce_op": "a step takes the mean over all samples",
    "data_efficiency": "data is `workload.data`",
    "autotuning": "it starts trainings of its own",
    "hybrid_engine": "it is for generating text",
    "weight_quantization": "it is for inference",
    "compile": "use `workload.compile`",
    "zero_optimization.zenflow": "its state cannot be kept in portable checkpoints",
    "zero_optimization.offload_optimizer.super_offload": "its state cannot be kept in portable checkpoints",
    "zero_optimization.offload_optimizer.ratio": "its state cannot be kept in portable checkpoints",
}
"""Parts of a DeepSpeed document without a place in a `training`, and why."""
_IDLE = {
    "zero_optimization.offload_optimizer.ratio": 1.0,
    "gradient_allreduce_op": "mean",
    "managed_gradient_accumulation": True,
    "sequence_parallel_size": 1,
}

CHECKS = (_document, _owned, _not_for_trainings, _learning)
