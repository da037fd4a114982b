"""How a trained model is laid down for others to read; what `export` follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shunter_trainer.models.lora import LoraForm

Named = tuple[str, Tensor]

_COMPANIONS = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model", "*.jinja"),
    *("chat_template.json", "generation_config.json", "*processor_config.json"),
)


def as_they_are(named: Named) -> Iterable[Named]:
    """The names and values of the trained model."""
    return (named,)


@dataclass(frozen=True, slots=True)
class Release:
    """What `export` needs to know of a model besides its weights."""

    config: Mapping[str, Any]
    """`config.json`, but for the type of the weights."""
    dtype: torch.dtype | None = None
    """The type of the exported weights. None: that of the trained ones."""
    dtype_key: str = "torch_dtype"
    """The member of `config.json` that tells the type."""
    convert: Callable[[Named], Iterable[Named]] = as_they_are
    """From a tensor of the model to what is stored, in order; may hold tensors back until those they belong to come."""
    left_out: frozenset[str] = frozenset()
    """Names that are not stored, since they repeat another."""
    companions: tuple[Path, ...] = ()
    """Files that came with the weights and go with them: tokenizer, generation settings."""
    base: Callable[[], Iterable[Named]] | None = None
    """Reads what was frozen again, unrounded, under the names of the trained model; it need not be gathered then."""
    read_again: frozenset[str] = frozenset()
    """The names that `base` gives."""
    lora: LoraForm | None = None
    base_sha256: str | None = None
    """Digest of what an adapter was trained on."""


def repeated_names(module: nn.Module) -> frozenset[str]:
    """Names of tied parameters but the first of each."""
    first = {name for name, _ in module.named_parameters()}
    return frozenset(name for name, _ in module.named_parameters(remove_duplicate=False) if name not in first)


def companions_in(folder: Path) -> tuple[Path, ...]:
    """What goes with a model of this folder besides its weights and configuration: tokenizer, generation settings."""
    found = {file for pattern in _COMPANIONS for file in folder.glob(pattern) if file.is_file()}
    return tuple(sorted(found))
