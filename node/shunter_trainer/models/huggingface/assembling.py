"""A `huggingface` model of the document with everything that is asked of it: adapters, types, export."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from shunter_schemas.training import TrainingWorkload
from torch import Tensor, nn

from shunter_trainer.data.tokenizers import find_tokenizer
from shunter_trainer.failures import UserFault
from shunter_trainer.models.built import Built
from shunter_trainer.models.frozen import leave_out_frozen
from shunter_trainer.models.huggingface.building import HuggingFace, build, plain_config, stored_names
from shunter_trainer.models.lora import LoraForm, add_adapters, base_name, filler_beside
from shunter_trainer.models.release import Release, repeated_names
from shunter_trainer.places import Places


def assemble(workload: TrainingWorkload, places: Places, types: Mapping[str, torch.dtype]) -> Built:
    """`types`: torch's by the document's names.

    Raises: UserFault naming the field of the document that cannot be followed.
    """
    model: Any = workload.model
    made = build(model, workload.seed, places, _padding(workload, places))
    _check_sequence(workload, made.config)
    convert, repeated = stored_names(made.module), repeated_names(made.module)
    lora, fill, base = None, made.fill, None
    if workload.adapter is not None:
        lora = add_adapters(made.module, workload.adapter, made.head, model.task)
        fill, base = filler_beside(fill, workload.seed), made.base_sha256()
        leave_out_frozen(made.module)
    _cast(made.module, types[workload.dtypes.parameters], types[workload.dtypes.compute])
    return Built(
        module=made.module,
        fill=fill,
        accepts=made.accepts,
        release=Release(
            config=plain_config(made.config),
            dtype=_export_type(workload, made, lora, types),
            dtype_key="dtype",
            convert=convert,
            left_out=repeated,
            companions=made.companions,
            base=_base(made) if lora else None,
            read_again=frozenset(_read_again(made)) if lora else frozenset(),
            lora=lora,
            base_sha256=base,
        ),
        own_labels=True,
        classifies=model.task != "causal_lm" and made.config.num_labels > 1,
        notes=made.notes,
    )


def _base(made: HuggingFace) -> Callable[[], Iterator[tuple[str, Tensor]]]:
    names, pretrained = _read_again(made), made.pretrained

    def base() -> Iterator[tuple[str, Tensor]]:
        if pretrained is not None:
            yield from ((name, pretrained.read(base_name(name))) for name in names)

    return base


def _read_again(made: HuggingFace) -> list[str]:
    """Frozen parameters that the files hold, under the names that they have beside adapters."""
    if made.pretrained is None:
        return []
    frozen = (name for name, parameter in made.module.named_parameters() if not parameter.requires_grad)
    return [name for name in frozen if made.pretrained.has(base_name(name))]


def _padding(workload: TrainingWorkload, places: Places) -> int | None:
    """Language models that classify look for the last token that is no padding: they must know what fills the rows."""
    model, tokenizer = workload.model, getattr(workload.data, "tokenizer", None)
    if tokenizer is None or getattr(model, "task", None) != "sequence_classification":
        return None
    return find_tokenizer(tokenizer, workload, places, "/workload/data/tokenizer").padding


def _check_sequence(workload: TrainingWorkload, config: Any) -> None:
    length, longest = workload.sequence_length, getattr(config.get_text_config(), "max_position_embeddings", None)
    if length is not None and longest is not None and length > longest:
        raise UserFault(
            "/workload/data/sequence_length",
            f"{length} is more than the {longest} positions of the model (`max_position_embeddings`); use {longest} or "
            "less, or raise it in workload.model.config",
        )


def _cast(module: nn.Module, trained: torch.dtype, frozen: torch.dtype) -> None:
    """Parameters to their types. Buffers keep theirs: the angles of rotary positions would lose their precision."""
    for parameter in module.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(trained if parameter.requires_grad else frozen)


def _export_type(
    workload: TrainingWorkload, made: HuggingFace, lora: LoraForm | None, types: Mapping[str, torch.dtype]
) -> torch.dtype | None:
    if workload.export.dtype != "auto":
        return types[workload.export.dtype]
    # Without pretrained weights, a frozen base has the compute type beside fp32 adapters: one type for all of them.
    if made.pretrained is not None:
        return made.pretrained.dtype
    return types[workload.dtypes.compute] if lora else None
