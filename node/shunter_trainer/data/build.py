"""From `workload.data` to samples: one builder a kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from shunter_schemas.data import ValidationSplit
from shunter_schemas.training import TrainingWorkload

from shunter_trainer.data.samples import Mapped, Samples, TensorPool, Unindexed, split
from shunter_trainer.data.text import BYTES_VOCAB, TEXT_KINDS, text_samples
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


def build_data(workload: TrainingWorkload, places: Places) -> DataSets:
    """Raises: UserFault naming the field of the document that cannot be followed."""
    train = _samples(workload.data, workload, places, "/workload/data")
    workers = getattr(workload.data, "workers_per_gpu", 0)
    held_back = workload.data.validation
    if held_back is None:
        if workload.evaluation is not None:
            raise UserFault("/workload/evaluation", "needs workload.data.validation")
        return DataSets(train, None, workers)
    if isinstance(train, Unindexed):
        raise UserFault("/workload/data/validation", "an iterable without a length cannot be split or evaluated on")
    if isinstance(held_back, ValidationSplit):
        rest, validation = split(train, held_back.fraction, workload.seed)
        return DataSets(rest, validation, workers)
    other = _samples(held_back, workload, places, "/workload/data/validation")
    if isinstance(other, Unindexed):
        raise UserFault("/workload/data/validation", "validation data must have a length")
    return DataSets(train, other, workers)


def _samples(data: Any, workload: TrainingWorkload, places: Places, pointer: str) -> Samples | Unindexed:
    builder = _BUILDERS.get(data.kind)
    if builder is None:
        raise UserFault(f"{pointer}/kind", f"{data.kind!r} is not available yet (available: {', '.join(_BUILDERS)})")
    return builder(data, workload, places, pointer)


def _text(data: Any, workload: TrainingWorkload, places: Places, pointer: str) -> Samples:
    if data.tokenizer != "bytes":
        raise UserFault(f"{pointer}/tokenizer", f'{data.tokenizer!r} is not available yet; use "bytes"')
    vocab = getattr(workload.model, "vocab", BYTES_VOCAB)
    if vocab < BYTES_VOCAB:
        raise UserFault("/workload/model/vocab", f"{vocab} is too small for the bytes tokenizer's {BYTES_VOCAB} ids")
    return text_samples(data, _sequence_length(data, workload, pointer), places, pointer)


def _synthetic(data: Any, workload: TrainingWorkload, places: Places, pointer: str) -> Samples:
    generator = torch.Generator().manual_seed(workload.seed + _POOL_SEED)
    if data.fields:
        sizes = [4 if field.dtype == "float32" else 8 for field in data.fields.values()]
        elements = [torch.Size(field.shape).numel() for field in data.fields.values()]
        rows = _pool_rows(data.samples, sum(a * b for a, b in zip(sizes, elements, strict=True)))
        pool = {name: _random(field, rows, generator) for name, field in data.fields.items()}
        return TensorPool(pool, data.samples, tokens_per_sample=0)
    vocab = getattr(workload.model, "vocab", None)
    if vocab is None:
        raise UserFault(f"{pointer}/fields", "must name the tensors of a sample, unless the model is a `transformer`")
    length = _sequence_length(data, workload, pointer)
    ids = torch.randint(vocab, (_pool_rows(data.samples, 8 * length), length), generator=generator)
    return TensorPool({"input_ids": ids, "labels": ids}, data.samples, tokens_per_sample=length)


def _python(data: Any, workload: TrainingWorkload, places: Places, pointer: str) -> Samples | Unindexed:
    made = call_target(data.target, data.arguments, pointer)
    if hasattr(made, "__getitem__") and hasattr(made, "__len__"):
        if len(made) == 0:
            raise UserFault(f"{pointer}/target", f"{data.target} returned an empty data set")
        return Mapped(made, workload.seed, data.target)
    if hasattr(made, "__iter__"):
        return Unindexed(made, data.target)
    raise UserFault(
        f"{pointer}/target",
        f"{data.target} returned a {type(made).__name__}, which is neither a map-style data set "
        "(__len__ and __getitem__) nor an iterable",
    )


def _sequence_length(data: Any, workload: TrainingWorkload, pointer: str) -> int:
    context = getattr(workload.model, "context", None)
    length = data.sequence_length or getattr(workload.data, "sequence_length", None) or context
    if length is None:
        raise UserFault(f"{pointer}/sequence_length", "must be given, unless the model is a `transformer`")
    if context is not None and length > context:
        raise UserFault(f"{pointer}/sequence_length", f"{length} is more than workload.model.context ({context})")
    if length < 2:
        raise UserFault(f"{pointer}/sequence_length", "must be at least 2: the first token is no target")
    return int(length)


def _pool_rows(samples: int, sample_bytes: int) -> int:
    return max(1, min(samples, _POOL_BYTES // max(sample_bytes, 1)))


def _random(field: Any, rows: int, generator: torch.Generator) -> torch.Tensor:
    shape = (rows, *field.shape)
    if field.dtype == "float32":
        return torch.randn(shape, generator=generator)
    return torch.randint(field.high or 2, shape, generator=generator)


_Builder = Callable[[Any, TrainingWorkload, Places, str], "Samples | Unindexed"]
_BUILDERS: dict[str, _Builder] = {
    **dict.fromkeys(sorted(TEXT_KINDS), _text),
    "python": _python,
    "synthetic": _synthetic,
}
