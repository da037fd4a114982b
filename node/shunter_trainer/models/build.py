"""From `workload.model` to a module: one builder a kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from shunter_schemas.training import TrainingWorkload
from torch import nn

from shunter_trainer.failures import UserFault
from shunter_trainer.models.compiling import compile_blocks
from shunter_trainer.models.materialise import Filler, keep_values
from shunter_trainer.models.recompute import recompute_blocks
from shunter_trainer.models.transformer import Shape, Transformer, first_values, llama_config
from shunter_trainer.seeds import seed_everything
from shunter_trainer.targets import call_target

_Parts = tuple[nn.Module, Filler, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Built:
    """A model as it comes out of its builder: on the meta device, or on the CPU with its values."""

    module: nn.Module
    fill: Filler
    """Gives what lies on the meta device its first values; strategies call it (`models/materialise.py`)."""
    accepts: frozenset[str] | None
    """Names that `forward` takes out of a batch. None: all."""
    config: Mapping[str, Any]
    """What `config.json` of the export says."""


def build_model(workload: TrainingWorkload) -> Built:
    """Build the model from the document and the seed, the same on every rank; `materialise` gives it memory.

    Raises: UserFault naming the field of the document that cannot be followed.
    """
    _refuse_what_is_not_there_yet(workload)
    seed_everything(workload.seed)
    builder = _BUILDERS.get(workload.model.kind)
    if builder is None:
        raise UserFault(
            "/workload/model/kind",
            f"{workload.model.kind!r} is not available yet (available: {', '.join(_BUILDERS)})",
        )
    module, fill, config = builder(workload)
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise UserFault("/workload/model", "the model has no parameter that could be trained")
    module.to(dtype=_PARAMETER_TYPES[workload.dtypes.parameters])
    accepts = _accepted(module)
    if workload.activation_checkpointing in ("full", "selective"):
        recompute_blocks(module, workload.activation_checkpointing)
    if workload.compile is True:
        compile_blocks(module)
    return Built(module, fill, accepts, config)


def transformer_shape(model: Any) -> Shape:
    """The sizes of a `transformer` model of the document, with its defaults filled in.

    Raises: UserFault when they do not fit each other.
    """
    shape = Shape(
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.num_kv_heads,
        ffn=model.ffn_width,
        vocab=model.vocab,
        context=model.context,
        tied_embeddings=model.tied_embeddings,
    )
    if shape.hidden % shape.heads or shape.head_width % 2:
        raise UserFault("/workload/model/hidden", f"{shape.hidden} must be an even multiple of heads ({shape.heads})")
    if shape.heads % shape.kv_heads:
        raise UserFault("/workload/model/kv_heads", f"heads ({shape.heads}) must be a multiple of {shape.kv_heads}")
    return shape


def _transformer(workload: TrainingWorkload) -> _Parts:
    shape = transformer_shape(workload.model)
    with torch.device("meta"):
        module = Transformer(shape)
    return module, first_values(shape, workload.seed), llama_config(shape)


def _python(workload: TrainingWorkload) -> _Parts:
    model: Any = workload.model
    module = call_target(model.target, model.arguments, "/workload/model")
    if not isinstance(module, nn.Module):
        raise UserFault(
            "/workload/model/target",
            f"{model.target} returned a {type(module).__name__}; it must return a torch.nn.Module",
        )
    return module, keep_values, {"model": model.model_dump(mode="json")}


def _accepted(module: nn.Module) -> frozenset[str] | None:
    parameters = inspect.signature(module.forward).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)


def _refuse_what_is_not_there_yet(workload: TrainingWorkload) -> None:
    if workload.adapter is not None:
        raise UserFault("/workload/adapter", "adapters are not available yet; leave it out to train all weights")
    if workload.export.weights != "full":
        raise UserFault("/workload/export/weights", 'only "full" is available yet')
    if workload.dtypes.compute == "fp8":
        raise UserFault("/workload/precision", 'fp8 is not available yet; use "bf16"')


_BUILDERS: dict[str, Callable[[TrainingWorkload], _Parts]] = {
    "transformer": _transformer,
    "python": _python,
}
_PARAMETER_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
