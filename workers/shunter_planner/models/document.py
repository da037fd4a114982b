"""From `workload` of a document to the sizes of its model, or the reason why they are not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shunter_schemas.hints import Hints
from shunter_schemas.models import HuggingFaceModel, LoraAdapter, PythonModel, TransformerModel
from shunter_schemas.script import ScriptWorkload
from shunter_schemas.training import TrainingWorkload

from shunter_planner.models.huggingface import UnknownArchitecture, image_tokens, shape_of_config
from shunter_planner.models.shape import ModelShape, with_lora

_DEFAULT_HEAD_WIDTH: Final = 128
_DEFAULT_VOCAB: Final = 50_000


@dataclass(frozen=True, slots=True)
class Known:
    """A model whose sizes are known, and the positions of one sample."""

    shape: ModelShape
    positions: int
    note: str = ""
    """How far the sizes can be trusted, where they are not exact."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why nothing can be said of the model, and what would help."""

    detail: str


def model_of(workload: TrainingWorkload | ScriptWorkload, config: Mapping[str, Any] | None = None) -> Known | Unknown:
    """The sizes of what is trained.

    Args:
        config: `config.json` of the weights that a `huggingface` model names, where it could be read.
    """
    if isinstance(workload, ScriptWorkload):
        return _of_hints(workload.hints, None)
    model = workload.model
    if isinstance(model, TransformerModel):
        return Known(transformer_shape(model), workload.sequence_length or model.context)
    if isinstance(model, PythonModel):
        return _of_hints(model.hints, workload.sequence_length)
    return _of_huggingface(workload, model, config)


def transformer_shape(model: TransformerModel) -> ModelShape:
    """A `transformer` of the document: exactly what `shunter_trainer.models.transformer` builds."""
    width = model.hidden // model.heads
    attention = 2 * model.hidden * model.hidden + 2 * model.hidden * model.num_kv_heads * width
    block = attention + 3 * model.hidden * model.ffn_width + 2 * model.hidden
    table = model.vocab * model.hidden
    return ModelShape(
        name="transformer",
        parameters=model.layers * block + model.hidden + table * (1 if model.tied_embeddings else 2),
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.num_kv_heads,
        head_width=width,
        ffn=model.ffn_width,
        gated=True,
        vocab=model.vocab,
        lookup_parameters=0 if model.tied_embeddings else table,
        block_parameters=block,
    )


def _of_huggingface(
    workload: TrainingWorkload, model: HuggingFaceModel, stored: Mapping[str, Any] | None
) -> Known | Unknown:
    asked = model.config or {}
    if model.weights is not None and stored is None and "model_type" not in asked:
        return Unknown(f"`config.json` of {model.weights} could not be read, so the model's size is not known")
    merged = {**(stored or {}), **asked}
    if "num_labels" in asked:
        merged.pop("id2label", None)
    try:
        shape = shape_of_config(merged, model.task)
    except (UnknownArchitecture, KeyError, ZeroDivisionError, TypeError) as error:
        return Unknown(f"the model's size is not known: {error}")
    if workload.adapter is not None:
        shape = _adapted(shape, workload.adapter)
    positions = image_tokens(merged) if model.task == "image_classification" else workload.sequence_length
    if positions is None:
        return Unknown("`data.sequence_length` is not given, so the model's activations are not known")
    return Known(shape, positions)


def _adapted(shape: ModelShape, adapter: LoraAdapter) -> ModelShape:
    """Adapters beside the linear layers that are named; of each, A is rank x inputs and B outputs x rank."""
    matrices = _linear_layers(shape)
    wanted = matrices if "all-linear" in adapter.targets else _named(matrices, adapter.targets)
    parameters = sum(adapter.rank * (inputs + outputs) for inputs, outputs in wanted.values())
    return with_lora(shape, adapter.rank, len(wanted), shape.layers * parameters)


def _linear_layers(shape: ModelShape) -> Mapping[str, tuple[int, int]]:
    hidden, q, kv, ffn = shape.hidden, shape.query_width, shape.kv_width, shape.ffn
    if shape.name == "gpt2":
        return {
            "c_attn": (hidden, 3 * hidden),
            "c_proj": (hidden, hidden),
            "c_fc": (hidden, ffn),
            "mlp.c_proj": (ffn, hidden),
        }
    if not shape.gated:
        return {
            "query": (hidden, q), "key": (hidden, kv), "value": (hidden, kv), "dense": (q, hidden),
            "intermediate.dense": (hidden, ffn), "output.dense": (ffn, hidden),
        }  # fmt: skip
    return {
        "q_proj": (hidden, q), "k_proj": (hidden, kv), "v_proj": (hidden, kv), "o_proj": (q, hidden),
        "gate_proj": (hidden, ffn), "up_proj": (hidden, ffn), "down_proj": (ffn, hidden),
    }  # fmt: skip


def _named(matrices: Mapping[str, tuple[int, int]], targets: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """By the last part of a name, as adapters are given; a name that is not known here counts as the widest layer."""
    found = {
        name: size
        for name, size in matrices.items()
        if any(name == target or name.rpartition(".")[2] == target.rpartition(".")[2] for target in targets)
    }
    widest = max(matrices.values(), key=sum)
    others = [target for target in targets if not any(name.endswith(target.rpartition(".")[2]) for name in matrices)]
    return {**found, **dict.fromkeys(others, widest)}


def _of_hints(hints: Hints | None, sequence_length: int | None) -> Known | Unknown:
    if hints is None or hints.parameters is None:
        return Unknown("the model is the user's own code, which is never run here; `hints` would tell its size")
    parameters = int(hints.parameters)
    layers = hints.layers or _usual_layers(parameters)
    hidden = hints.hidden or _usual_hidden(parameters, layers)
    positions = sequence_length or hints.sequence_length
    if positions is None:
        return Unknown("`hints.sequence_length` is not given, so the model's activations are not known")
    heads = max(1, hidden // _DEFAULT_HEAD_WIDTH)
    table = min(_DEFAULT_VOCAB * hidden, parameters // 3)
    block = (parameters - table) // layers
    ffn = max(hidden, (block - 4 * hidden * hidden) // (3 * hidden))
    shape = ModelShape(
        name="hints",
        parameters=parameters,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_width=hidden // heads,
        ffn=ffn,
        gated=True,
        vocab=_DEFAULT_VOCAB,
        lookup_parameters=table,
        block_parameters=block,
        composite_norms=True,
        is_exact=False,
    )
    return Known(shape, positions, "sizes by `hints`, the rest as in a usual decoder of that size")


def _usual_layers(parameters: int) -> int:
    """Decoders have 12 layers at 125 M parameters, 32 at 7 B, 80 at 70 B: about the cube root."""
    layers: float = 12 * (parameters / 125e6) ** 0.3
    return max(1, round(layers))


def _usual_hidden(parameters: int, layers: int) -> int:
    """A block of about 12 hidden² parameters."""
    hidden: float = (parameters / (12 * layers)) ** 0.5
    return max(64, 64 * round(hidden / 64))
