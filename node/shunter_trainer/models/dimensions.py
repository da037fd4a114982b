"""The sizes of a language model by its Hugging Face configuration, and the work of one token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
}


@dataclass(frozen=True, slots=True)
class Dimensions:
    """What attention costs depends on these alone."""

    layers: int
    heads: int
    head_width: int

    @staticmethod
    def of(config: Mapping[str, Any]) -> Dimensions | None:
        """None: the configuration does not say them, or is none of a transformer."""
        found = {ours: _first(config, theirs) for ours, theirs in _NAMES.items()}
        if None in found.values() or not found["heads"]:
            return None
        width = config.get("head_dim") or found["hidden"] // found["heads"]
        return Dimensions(found["layers"], found["heads"], int(width))


def flops_per_token(module: nn.Module, dimensions: Dimensions, sequence_length: int) -> float:
    """Operations of forward and backward for one token, without recomputation, as MFU counts them.

    2 a parameter in the forward pass, 2 in the backward pass for what comes in, 2 more for the parameter itself if it
    is trained; a table of embeddings, which is only looked up, counts nothing. Attention adds 12 * layers * heads *
    head width * sequence length (the two products of scores and values; causal masks are not made use of).

    Source:
        torchtitan, `get_nparams_and_flops`; MosaicML's tables (6 * parameters + 12 * layers * hidden * length).
    """
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    tables -= {id(part.weight) for part in module.modules() if isinstance(part, nn.Linear)}
    counted = [parameter for parameter in module.parameters() if id(parameter) not in tables]
    products = sum(parameter.numel() * (6 if parameter.requires_grad else 4) for parameter in counted)
    attention = 12 * dimensions.layers * dimensions.heads * dimensions.head_width * sequence_length
    return float(products + attention)


def _first(config: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((config[name] for name in names if isinstance(config.get(name), int)), None)
