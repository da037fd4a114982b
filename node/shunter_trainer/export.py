"""What a finished training leaves behind: `model.safetensors` and `config.json` in the output folder.

A `transformer` has the names and the configuration of Hugging Face's `LlamaForCausalLM`, so `from_pretrained` reads it;
a `python` model keeps its own names, and the configuration says how it was built.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from shunter_trainer.gang import Gang
from shunter_trainer.strategies.base import Strategy

WEIGHTS = "model.safetensors"
CONFIG = "config.json"


def export(strategy: Strategy, config: Mapping[str, Any], folder: Path, gang: Gang) -> None:
    """Write both files on rank 0. Every rank must call it, since weights may have to be gathered."""
    weights: dict[str, Tensor] = {}
    for name, value in strategy.weights():
        if gang.is_main:
            weights[name] = value.contiguous()
    if not gang.is_main:
        return
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{WEIGHTS}.part"
    save_file(_untied(weights), temporary, metadata={"format": "pt"})
    os.replace(temporary, folder / WEIGHTS)
    dtype = str(next(iter(weights.values())).dtype).removeprefix("torch.")
    (folder / CONFIG).write_text(json.dumps({**config, "torch_dtype": dtype}, indent=2) + "\n", encoding="utf-8")


def _untied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One name for each memory: the file format has no shared tensors, and readers tie them again."""
    kept: dict[tuple[int, int], str] = {}
    for name, value in weights.items():
        kept.setdefault((value.data_ptr(), value.numel()) if value.numel() else (id(value), 0), name)
    return {name: weights[name] for name in kept.values()}
