"""What the data must know of the model, read from the document and from `config.json` of its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shunter_schemas.models import HuggingFaceModel, TransformerModel
from shunter_schemas.training import TrainingWorkload

from shunter_trainer.data.tokenizers import BYTES_VOCAB, Tokenizer
from shunter_trainer.failures import UserFault
from shunter_trainer.places import Places

_POSITIONS = ("max_position_embeddings", "n_positions")


def model_config(workload: TrainingWorkload, places: Places) -> Mapping[str, Any]:
    """The configuration of a `huggingface` model as far as files and the document say it; empty for other models."""
    model = workload.model
    if not isinstance(model, HuggingFaceModel):
        return {}
    found = _json(places, model.weights, "config.json") if model.weights else {}
    merged = {**found, **(model.config or {})}
    inner = merged.get("text_config")
    return {**inner, **merged} if isinstance(inner, dict) else merged


def picture_config(workload: TrainingWorkload, places: Places) -> Mapping[str, Any]:
    """How the weights' own preparation of images is configured; empty when nothing says it."""
    weights = getattr(workload.model, "weights", None)
    return _json(places, weights, "preprocessor_config.json") if weights else {}


def model_vocab(workload: TrainingWorkload, places: Places) -> int | None:
    """How many ids the model has; None when only the model itself knows."""
    if isinstance(workload.model, TransformerModel):
        return workload.model.vocab
    return _number(model_config(workload, places), "vocab_size")


def check_vocab(tokenizer: Tokenizer, workload: TrainingWorkload, places: Places, pointer: str) -> None:
    """Raises: UserFault when the tokenizer gives ids that the model does not have."""
    vocab = model_vocab(workload, places)
    if vocab is None or tokenizer.vocab <= vocab:
        return
    if tokenizer.name == "bytes":
        raise UserFault("/workload/model/vocab", f"{vocab} is too small for the bytes tokenizer's {BYTES_VOCAB} ids")
    raise UserFault(
        f"{pointer}/tokenizer",
        f"{tokenizer.name!r} has {tokenizer.vocab} ids, more than the model's vocabulary of {vocab}; "
        "give the model's own tokenizer (`model`), or a model with as many",
    )


def sequence_length(data: Any, workload: TrainingWorkload, places: Places, pointer: str) -> int:
    """Tokens of a sample.

    Raises: UserFault when nothing says it, or when the model cannot take so many.
    """
    context, named = getattr(workload.model, "context", None), "workload.model.context"
    config = model_config(workload, places)
    if context is None:
        name = next((name for name in _POSITIONS if _number(config, name)), None)
        context, named = (_number(config, name), f"the model's {name}") if name else (None, "")
    given = data.sequence_length or getattr(workload.data, "sequence_length", None)
    length = given or getattr(workload.model, "context", None)
    place = f"{pointer}/sequence_length"
    if length is None:
        raise UserFault(place, "must be given, unless the model is a `transformer`")
    if context is not None and length > context:
        raise UserFault(place, f"{length} is more than {named} ({context})")
    if length < 2:
        raise UserFault(place, "must be at least 2: the first token is no target")
    return int(length)


def _number(config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if isinstance(value, int) and value > 0 else None


def _json(places: Places, folder: str, name: str) -> Mapping[str, Any]:
    try:
        found = json.loads((places.resolve(folder) / name).read_bytes())
    except (OSError, ValueError):  # whoever builds the model says what is wrong with it
        return {}
    return found if isinstance(found, dict) else {}
