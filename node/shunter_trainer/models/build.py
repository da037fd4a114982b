"""From `workload.model` to a module: one builder a kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from shunter_schemas.training import TrainingWorkload
from torch import nn

from shunter_trainer.failures import UserFault
from shunter_trainer.models.batch_norms import let_batch_norms_mix
from shunter_trainer.models.built import Built
from shunter_trainer.models.compiling import compile_blocks
from shunter_trainer.models.materialise import Filler, keep_values
from shunter_trainer.models.recompute import recompute_blocks
from shunter_trainer.models.release import Release, companions_in, repeated_names
from shunter_trainer.models.transformer import Shape, Transformer, first_values, llama_config
from shunter_trainer.places import Places
from shunter_trainer.seeds import seed_everything
from shunter_trainer.targets import call_target

__all__ = ["Built", "build_model", "transformer_shape"]


def build_model(workload: TrainingWorkload, places: Places | None = None) -> Built:
    """Build the model from the document and the seed, the same on every rank; `materialise` gives it memory.

    Every rank calls it: with an adapter, the ranks share the reading of the base. Without `places`, paths of the
    document are relative to the working directory.

    Raises: UserFault naming the field of the document that cannot be followed.
    """
    if workload.dtypes.compute == "fp8":
        raise UserFault("/workload/precision", 'fp8 is not available yet; use "bf16"')
    seed_everything(workload.seed)
    places = places or Places.from_environment({"SHUNTER_DOCUMENT": "-"})
    built = _with_tokenizer(_BUILDERS[workload.model.kind](workload, places), workload, places)
    module = built.module
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise UserFault("/workload/model", "the model has no parameter that could be trained")
    if workload.dtypes.compute != "fp32":
        let_batch_norms_mix(module)
    if workload.activation_checkpointing in ("full", "selective"):
        recompute_blocks(module, workload.activation_checkpointing)
    if workload.compile is True:
        compile_blocks(module)
    return built


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


def _transformer(workload: TrainingWorkload, places: Places) -> Built:
    shape = transformer_shape(workload.model)
    with torch.device("meta"):
        module = Transformer(shape)
    release = Release(llama_config(shape), _export_type(workload), left_out=repeated_names(module))
    return _built(module, first_values(shape, workload.seed), release, workload, own_labels=True)


def _python(workload: TrainingWorkload, places: Places) -> Built:
    model: Any = workload.model
    module = call_target(model.target, model.arguments, "/workload/model")
    if not isinstance(module, nn.Module):
        raise UserFault(
            "/workload/model/target",
            f"{model.target} returned a {type(module).__name__}; it must return a torch.nn.Module",
        )
    told = {"model": model.model_dump(mode="json")}
    release = Release(told, _export_type(workload), left_out=repeated_names(module))
    return _built(module, keep_values, release, workload, own_labels=False)


def _huggingface(workload: TrainingWorkload, places: Places) -> Built:
    # A heavy import, needed only here.
    from shunter_trainer.models.huggingface.assembling import assemble

    return assemble(workload, places, _TYPES)


def _built(module: nn.Module, fill: Filler, release: Release, workload: TrainingWorkload, *, own_labels: bool) -> Built:
    if workload.adapter is not None:
        raise UserFault("/workload/adapter", "adapters are for `huggingface` models; leave it out")
    accepts = _accepted(module)
    module.to(dtype=_TYPES[workload.dtypes.parameters])
    return Built(module, fill, accepts, release, own_labels)


def _export_type(workload: TrainingWorkload) -> torch.dtype | None:
    return None if workload.export.dtype == "auto" else _TYPES[workload.export.dtype]


def _with_tokenizer(built: Built, workload: TrainingWorkload, places: Places) -> Built:
    """A model that came without a tokenizer takes that of its data along."""
    tokenizer = getattr(workload.data, "tokenizer", "bytes")
    if built.release.companions or not tokenizer.startswith("input:"):
        return built
    return replace(built, release=replace(built.release, companions=companions_in(places.resolve(tokenizer))))


def _accepted(module: nn.Module) -> frozenset[str] | None:
    parameters = inspect.signature(module.forward).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)


_BUILDERS: dict[str, Callable[[TrainingWorkload, Places], Built]] = {
    "transformer": _transformer,
    "python": _python,
    "huggingface": _huggingface,
}
_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
