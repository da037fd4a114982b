"""From `workload.data` to samples: one builder a kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from shunter_schemas.data import ValidationSplit
from shunter_schemas.training import TrainingWorkload

from shunter_trainer.data.chat import chat_samples
from shunter_trainer.data.image_folder import image_samples
from shunter_trainer.data.items import Mapped
from shunter_trainer.data.making import Made, Making
from shunter_trainer.data.model_facts import sequence_length
from shunter_trainer.data.once import Beat
from shunter_trainer.data.samples import Samples, TensorPool, Unindexed, split
from shunter_trainer.data.text import TEXT_KINDS, text_samples
from shunter_trainer.data.webdataset import shard_samples
from shunter_trainer.failures import UserFault
from shunter_trainer.places import Places
from shunter_trainer.targets import call_target

_POOL_BYTES = 64 << 20
_POOL_SEED = 0x9001


@dataclass(frozen=True, slots=True)
class DataSets:
    """What is trained on and what is evaluated on."""

    train: Samples | Unindexed
    validation: Samples | None
    workers: int
    classes: tuple[str, ...] | None = None
    """Names of the classes in the order of their numbers, where samples have classes."""
    notes: tuple[str, ...] = ()
    """What people should know about the data."""


def build_data(workload: TrainingWorkload, places: Places, beat: Beat = lambda: None) -> DataSets:
    """`beat` is called again and again while data are prepared.

    Raises: UserFault naming the field of the document that cannot be followed.
    """
    making = Making(workload, places, "/workload/data", beat)
    made = _made(workload.data, making)
    notes = (*made.notes, *_few(made, workload))
    train, workers = made.samples, getattr(workload.data, "workers_per_gpu", 0)
    held_back = workload.data.validation
    if held_back is None:
        if workload.evaluation is not None:
            raise UserFault("/workload/evaluation", "needs workload.data.validation")
        return DataSets(train, None, workers, made.classes, notes)
    if isinstance(train, Unindexed):
        raise UserFault("/workload/data/validation", "an iterable without a length cannot be split or evaluated on")
    if isinstance(held_back, ValidationSplit):
        rest, validation = split(train, held_back.fraction, workload.seed)
        return DataSets(rest, validation, workers, made.classes, notes)
    making = replace(making, pointer="/workload/data/validation", evaluates=True, classes=made.classes)
    other = _made(held_back, making)
    if isinstance(other.samples, Unindexed):
        raise UserFault("/workload/data/validation", "validation data must have a length")
    notes = (*notes, *(f"validation: {note}" for note in other.notes))
    return DataSets(train, other.samples, workers, made.classes, notes)


def _made(data: Any, making: Making) -> Made:
    builder = _BUILDERS.get(data.kind)
    if builder is None:
        detail = f"{data.kind!r} is not available yet (available: {', '.join(_BUILDERS)})"
        raise UserFault(f"{making.pointer}/kind", detail)
    return builder(data, making)


def _few(made: Made, workload: TrainingWorkload) -> tuple[str, ...]:
    if isinstance(made.samples, Unindexed) or len(made.samples) >= workload.batch.global_size:
        return ()
    few, many = len(made.samples), workload.batch.global_size
    return (f"{few} in all, fewer samples than the {many} of one step, which therefore takes some of them again",)


def _synthetic(data: Any, making: Making) -> Made:
    workload, pointer = making.workload, making.pointer
    generator = torch.Generator().manual_seed(workload.seed + _POOL_SEED)
    if data.fields:
        sizes = [4 if field.dtype == "float32" else 8 for field in data.fields.values()]
        elements = [torch.Size(field.shape).numel() for field in data.fields.values()]
        rows = _pool_rows(data.samples, sum(a * b for a, b in zip(sizes, elements, strict=True)))
        pool = {name: _random(field, rows, generator) for name, field in data.fields.items()}
        return Made(TensorPool(pool, data.samples, tokens_per_sample=0))
    vocab = getattr(workload.model, "vocab", None)
    if vocab is None:
        raise UserFault(f"{pointer}/fields", "must name the tensors of a sample, unless the model is a `transformer`")
    length = sequence_length(data, workload, making.places, pointer)
    ids = torch.randint(vocab, (_pool_rows(data.samples, 8 * length), length), generator=generator)
    return Made(TensorPool({"input_ids": ids, "labels": ids}, data.samples, tokens_per_sample=length))


def _python(data: Any, making: Making) -> Made:
    pointer = making.pointer
    made = call_target(data.target, data.arguments, pointer)
    if hasattr(made, "__getitem__") and hasattr(made, "__len__"):
        if len(made) == 0:
            raise UserFault(f"{pointer}/target", f"{data.target} returned an empty data set")
        return Made(Mapped(made, making.workload.seed, data.target, pointer))
    if hasattr(made, "__iter__"):
        return Made(Unindexed(made, data.target))
    raise UserFault(
        f"{pointer}/target",
        f"{data.target} returned a {type(made).__name__}, which is neither a map-style data set "
        "(__len__ and __getitem__) nor an iterable",
    )


def _pool_rows(samples: int, sample_bytes: int) -> int:
    return max(1, min(samples, _POOL_BYTES // max(sample_bytes, 1)))


def _random(field: Any, rows: int, generator: torch.Generator) -> torch.Tensor:
    shape = (rows, *field.shape)
    if field.dtype == "float32":
        return torch.randn(shape, generator=generator)
    return torch.randint(field.high or 2, shape, generator=generator)


_BUILDERS: dict[str, Callable[[Any, Making], Made]] = {
    **dict.fromkeys(TEXT_KINDS, text_samples),
    "chat": chat_samples,
    "image_folder": image_samples,
    "webdataset": shard_samples,
    "python": _python,
    "synthetic": _synthetic,
}
