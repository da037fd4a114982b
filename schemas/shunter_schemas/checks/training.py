"""A `training` against itself and against the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd

from shunter_schemas.batching import dividing_worlds
from shunter_schemas.checks.gang import multiples_around, ranks_place, world_size_of
from shunter_schemas.data import ImageFolderData, SyntheticData, ValidationSplit, WebDatasetData
from shunter_schemas.faults import Fault
from shunter_schemas.job import JobSpec
from shunter_schemas.models import HuggingFaceModel, TransformerModel
from shunter_schemas.nearest import did_you_mean
from shunter_schemas.optimization import Sgd, WsdSchedule
from shunter_schemas.oversight import evaluated_names
from shunter_schemas.resources import GpuRange
from shunter_schemas.strategies import DdpStrategy
from shunter_schemas.training import TrainingWorkload

BYTES_VOCAB = 256


def _batch_divides(job: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    world_size, size, micro = world_size_of(job), training.batch.global_size, training.batch.micro_size
    if world_size is None:
        yield from _batch_divides_in_range(job, training)
        return
    if size % world_size:
        detail = f"{size} samples do not divide over {world_size} ranks ({ranks_place(job)})"
        yield Fault("/workload/batch/global_size", f"{detail}; use {multiples_around(size, world_size)}")
    elif micro != "auto" and (size // world_size) % micro:
        per_rank = size // world_size
        detail = f"{micro} on each of {world_size} ranks ({ranks_place(job)}) do not divide `global_size` {size}"
        yield Fault(
            "/workload/batch/micro_size",
            f"{detail}; use {gcd(micro, per_rank)} or `auto`",
        )


def _batch_divides_in_range(job: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    gpus = job.resources.gpus
    if not isinstance(gpus, GpuRange) or gpus.min > gpus.max or dividing_worlds(training.batch, gpus.min, gpus.max):
        return
    size, micro = training.batch.global_size, training.batch.micro_size
    samples = f"{size} samples" if micro == "auto" else f"{size} samples in micro-batches of {micro}"
    detail = f"{samples} divide over no number of ranks from {gpus.min} to {gpus.max} (/resources/gpus)"
    yield Fault("/workload/batch/global_size", f"{detail}; use {multiples_around(size, gpus.min)}")


def _batch_divides_over_fewer(job: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    least, world_size = job.recovery.min_gpus, world_size_of(job)
    if least is None or world_size is None or least >= world_size:
        return
    if dividing_worlds(training.batch, least, world_size - 1) or not dividing_worlds(training.batch, 1, world_size):
        return
    size, fewer = training.batch.global_size, dividing_worlds(training.batch, 1, least)
    detail = (
        f"no number of GPUs from {least} to {world_size - 1} divides `global_size` {size} (/workload/batch/global_size)"
    )
    yield Fault("/recovery/min_gpus", f"{detail}; use {fewer[-1]}, or leave it out")


def _one_duration(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    given = [name for name in ("steps", "epochs", "tokens") if getattr(training.duration, name) is not None]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "none is given"
        yield Fault("/workload/duration", f"needs exactly one of steps, epochs and tokens; {found}")
    if given == ["tokens"] and training.sequence_length is None:
        detail = "counting tokens needs `data.sequence_length`, which this data does not have; use steps or epochs"
        yield Fault("/workload/duration/tokens", detail)


def _transformer_divides(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    model = training.model
    if not isinstance(model, TransformerModel):
        return
    if model.hidden % model.heads:
        detail = f"{model.hidden} does not divide by `heads` {model.heads}"
        yield Fault("/workload/model/hidden", f"{detail}; use {multiples_around(model.hidden, model.heads)}")
    elif model.hidden // model.heads % 2:
        detail = f"{model.hidden} / `heads` {model.heads} gives heads of odd width {model.hidden // model.heads}"
        yield Fault("/workload/model/hidden", f"{detail}; use {multiples_around(model.hidden, 2 * model.heads)}")
    if model.heads % model.num_kv_heads:
        detail = f"`heads` {model.heads} does not divide by `kv_heads` {model.num_kv_heads}"
        yield Fault("/workload/model/kv_heads", f"{detail}; use a divisor of {model.heads}")


def _sequences_fit(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    model, data = training.model, training.data
    validation = data.validation
    for place, part in (("/workload/data", data), ("/workload/data/validation", validation)):
        length = getattr(part, "sequence_length", None)
        if isinstance(model, TransformerModel):
            if length is not None and length > model.context:
                detail = f"{length} tokens are more than the model's `context` {model.context}"
                yield Fault(f"{place}/sequence_length", f"{detail}; use {model.context} or less")
            if getattr(part, "tokenizer", None) == "bytes" and model.vocab < BYTES_VOCAB:
                detail = f"`vocab` {model.vocab} is below the {BYTES_VOCAB} ids of `bytes` ({place}/tokenizer)"
                yield Fault("/workload/model/vocab", f"{detail}; use {BYTES_VOCAB} or more")
        elif hasattr(part, "tokenizer") and length is None:
            detail = f"`sequence_length` is missing, and a `{model.kind}` model does not give it"
            yield Fault(place, f"{detail}; say how many tokens a sample has")


def _data_fits_model(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    model, data = training.model, training.data
    if isinstance(model, TransformerModel) and isinstance(data, ImageFolderData | WebDatasetData):
        yield Fault("/workload/data/kind", f"`{data.kind}` gives no tokens, which a `transformer` model takes")
    loss = training.loss.kind if training.loss is not None else "causal_lm"
    if isinstance(model, TransformerModel) and loss in {"cross_entropy", "mse"}:
        detail = f"`{loss}` does not fit a `transformer` model, which predicts tokens; use causal_lm"
        yield Fault("/workload/loss/kind", detail)


def _synthetic(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    for place, data in (("/workload/data", training.data), ("/workload/data/validation", training.data.validation)):
        if not isinstance(data, SyntheticData):
            continue
        is_transformer = isinstance(training.model, TransformerModel)
        if is_transformer and data.fields:
            yield Fault(f"{place}/fields", "a `transformer` model takes random tokens; leave `fields` out")
        if not is_transformer and not data.fields:
            yield Fault(place, f"`fields` is missing: say which tensors a `{training.model.kind}` model takes")
        for name, field in data.fields.items():
            if (field.dtype == "int64") != (field.high is not None):
                way_out = "int64 needs `high`" if field.dtype == "int64" else "float32 takes no `high`"
                yield Fault(f"{place}/fields/{name}", f"{way_out}; add or drop it")


def _evaluation(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    validation, best = training.data.validation, training.checkpoint.keep_best
    if training.evaluation is not None and validation is None:
        detail = 'needs `data.validation`, such as {"fraction": 0.05}'
        yield Fault("/workload/evaluation", detail)
    if validation is not None and not isinstance(validation, ValidationSplit) and validation.validation is not None:
        yield Fault("/workload/data/validation/validation", "validation data has no validation itself; leave it out")
    if best is None:
        return
    known = (*evaluated_names(training.metrics), "loss")
    if best not in known:
        yield Fault("/workload/checkpoint/keep_best", f"must be {' or '.join(known)}{did_you_mean(best, known)}")
    elif best.startswith("val_") and training.evaluation is None:
        detail = f"`{best}` needs `workload.evaluation`; add it, or leave `keep_best` out"
        yield Fault("/workload/checkpoint/keep_best", detail)


def _warmup(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    schedule, steps = training.schedule, training.duration.steps
    if schedule.warmup_steps is not None and schedule.warmup_ratio is not None:
        yield Fault("/workload/schedule/warmup_ratio", "`warmup_steps` is given too; give one of them")
    elif schedule.warmup_steps is not None and steps is not None and schedule.warmup_steps > steps:
        detail = f"{schedule.warmup_steps} steps of warm-up are more than `duration.steps` {steps}"
        yield Fault("/workload/schedule/warmup_steps", f"{detail}; use {steps} or less")
    if isinstance(schedule, WsdSchedule) and (schedule.warmup_ratio or 0.0) + schedule.decay_ratio > 1 + 1e-9:
        detail = (
            f"`warmup_ratio` {schedule.warmup_ratio:g} and `decay_ratio` {schedule.decay_ratio:g} are more than all"
        )
        yield Fault("/workload/schedule/decay_ratio", f"{detail} steps; together they may be 1 at the most")


def _metrics(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    if training.metrics and training.evaluation is None:
        yield Fault("/workload/metrics", "needs `workload.evaluation`; add it, or leave this out")
    loss, task = training.loss.kind if training.loss is not None else None, getattr(training.model, "task", "causal_lm")
    classifies = loss == "cross_entropy" or (loss is None and task != "causal_lm")
    for index, name in enumerate(training.metrics):
        if name in {"top1", "top5"} and not classifies:
            yield Fault(f"/workload/metrics/{index}", f"`{name}` needs `workload.loss`: cross_entropy")


def _early_stopping(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    stopping = training.evaluation.early_stopping if training.evaluation is not None else None
    if stopping is None:
        return
    known = evaluated_names(training.metrics)
    if stopping.metric not in known:
        detail = f"must be {' or '.join(known)}{did_you_mean(stopping.metric, known)}"
        if stopping.metric in {"val_top1", "val_top5", "val_perplexity"}:
            detail = f"`{stopping.metric}` is not measured; add {stopping.metric[4:]!r} to `workload.metrics`"
        yield Fault("/workload/evaluation/early_stopping/metric", detail)


def _profile(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    profile, steps = training.profile, training.duration.steps
    if profile is None:
        return
    if profile.last_step < profile.first_step:
        detail = f"`last_step` {profile.last_step} comes before `first_step` {profile.first_step}"
        yield Fault("/workload/profile/last_step", f"{detail}; use {profile.first_step} or more for `last_step`")
    elif steps is not None and profile.last_step > steps:
        detail = f"`last_step` {profile.last_step} is more than `duration.steps` {steps}; use {steps} or less"
        yield Fault("/workload/profile/last_step", detail)


def _fp16(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    dtypes = training.dtypes
    if dtypes.parameters == "fp16":
        detail = "small updates vanish in fp16 parameters; use fp32, which fp16 `compute` goes with"
        yield Fault("/workload/precision/parameters", detail)
    elif dtypes.compute == "fp16" and dtypes.parameters == "bf16":
        yield Fault("/workload/precision/compute", "fp16 goes with fp32 `parameters`, and these are bf16; use bf16")
    elif dtypes.reduce == "fp16" and dtypes.compute != "fp16":
        detail = f"only fp16 gradients are scaled to its range, and `compute` is {dtypes.compute}; use fp32 or bf16"
        yield Fault("/workload/precision/reduce", detail)


def _precision(job: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    dtypes = training.dtypes
    if dtypes.parameters != "bf16":
        return
    if dtypes.compute == "fp32":
        detail = f"{dtypes.compute} is wider than the `parameters`, which are bf16; use bf16"
        yield Fault("/workload/precision/compute", detail)
    if isinstance(job.strategy, DdpStrategy) and dtypes.reduce != "bf16":
        detail = f"ddp reduces in the type of the `parameters`, bf16, and `reduce` is {dtypes.reduce}; use bf16 for it"
        yield Fault("/workload/precision/reduce", detail)


def _momentum(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    optimizer = training.optimizer
    if isinstance(optimizer, Sgd) and optimizer.nesterov and not optimizer.momentum:
        yield Fault("/workload/optimizer/nesterov", "needs `momentum` above 0, and it is 0; use 0.9")


def _adapter(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    if training.adapter is not None and not isinstance(training.model, HuggingFaceModel):
        detail = f"adapters are for `huggingface` models, and this is a `{training.model.kind}` model; leave it out"
        yield Fault("/workload/adapter", detail)
    if training.adapter is None and training.export.weights != "full":
        detail = f"`{training.export.weights}` needs `workload.adapter`, which is not given; use full"
        yield Fault("/workload/export/weights", detail)


_Check = Callable[[JobSpec, TrainingWorkload], Iterator[Fault]]


def _for_training(check: _Check) -> Callable[[JobSpec], Iterator[Fault]]:
    def checked(job: JobSpec) -> Iterator[Fault]:
        if isinstance(job.workload, TrainingWorkload):
            yield from check(job, job.workload)

    return checked


CHECKS = tuple(
    _for_training(check)
    for check in (
        _batch_divides,
        _batch_divides_over_fewer,
        _one_duration,
        _transformer_divides,
        _sequences_fit,
        _data_fits_model,
        _synthetic,
        _evaluation,
        _warmup,
        _metrics,
        _early_stopping,
        _profile,
        _fp16,
        _precision,
        _momentum,
        _adapter,
    )
)
