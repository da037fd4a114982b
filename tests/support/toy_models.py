"""Models of `transformers` small enough for tests, as folders that look like those of the hub."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from shunter_trainer.export import export
from shunter_trainer.gang import Gang
from shunter_trainer.models.build import Built

CPU = torch.device("cpu")
ALONE = Gang(0, 1, 0, 1, 0, 1, CPU)

_SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_TEXT = {**_SIZES, "vocab_size": 256, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0}
_IMAGE = {**_SIZES, "image_size": 16, "patch_size": 4}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **_TEXT, "num_key_value_heads": 2},
    "llama-tied": {"model_type": "llama", **_TEXT, "tie_word_embeddings": True},
    "qwen2": {"model_type": "qwen2", **_TEXT, "num_key_value_heads": 2},
    "gpt2": {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 256, "n_positions": 64}
    | {"bos_token_id": 0, "eos_token_id": 0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "mixtral": {"model_type": "mixtral", **_TEXT, "num_key_value_heads": 2, "num_local_experts": 4},
    "gemma3": {"model_type": "gemma3_text", **_TEXT, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0},
    "bert": {"model_type": "bert", **_SIZES, "vocab_size": 256, "max_position_embeddings": 64, "num_labels": 3},
    "vit": {"model_type": "vit", **_IMAGE, "num_labels": 3},
    "resnet": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 3},
}
"""Configurations by a name of ours."""

TASKS = {"bert": "sequence_classification", "vit": "image_classification", "resnet": "image_classification"}
"""The task of each that is no language model."""


def task_of(name: str) -> str:
    """The task that a configuration is for."""
    return TASKS.get(name, "causal_lm")


def toy_model(name: str, seed: int = 1, **changes: Any) -> Any:
    """A model with its own first values."""
    from shunter_trainer.models.huggingface.configuration import auto_class
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = {**CONFIGS[name], **changes}
    torch.manual_seed(seed)
    return auto_class(task_of(name)).from_config(CONFIG_MAPPING[config["model_type"]].from_dict(config)).eval()


def save_toy(name: str, folder: Path, *, shard_size: str = "5GB", seed: int = 1, **changes: Any) -> Any:
    """Write such a model as `transformers` itself does, and give it."""
    model = toy_model(name, seed, **changes)
    model.save_pretrained(folder, max_shard_size=shard_size)
    return model


def toy_inputs(name: str) -> dict[str, torch.Tensor]:
    """What the model takes, but for labels."""
    generator = torch.Generator().manual_seed(5)
    if task_of(name) == "image_classification":
        return {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator)}
    return {"input_ids": torch.randint(256, (2, 16), generator=generator)}


def edit_config(folder: Path, **changes: Any) -> None:
    """Change members of a folder's `config.json`."""
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def logits(module: Any, name: str) -> torch.Tensor:
    """What a model says to `toy_inputs`."""
    with torch.no_grad():
        found: torch.Tensor = module(**toy_inputs(name)).logits
    return found


class _Whole:
    """As much of a strategy as an export needs: the weights of a module."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    def weights(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, torch.Tensor]]:
        yield from ((name, value) for name, value in self._module.state_dict().items() if wanted(name))


def exported(made: Built, folder: Path, **options: Any) -> Path:
    """The folder, with the export of a model that has its values."""
    export(_Whole(made.module), made.release, folder, ALONE, **options)  # type: ignore[arg-type]  # as much as it needs
    return folder
