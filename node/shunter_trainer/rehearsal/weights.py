"""Pretrained weights in a rehearsal: small ones as they are, large ones replaced by fresh ones of a model cut short.

The replacement has the folder's own configuration with two layers, its tokenizer and templates, and is read the same
way: so everything but the values is rehearsed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from shunter_trainer.models.huggingface.configuration import CONFIG, auto_class
from shunter_trainer.rehearsal.cutting import Cut, cut_config

SMALL_BYTES = 256 << 20
STAND_IN = "rehearsal-weights"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".index.json")


def stand_in(made: Cut, origin: Path, inputs: Path) -> None:
    """Put weights of a model cut short in the place of large ones; `origin` is their folder.

    Raises: OSError or ValueError when the folder is none of a `transformers` model.
    """
    files = [file for file in origin.iterdir() if file.is_file()]
    size = sum(file.stat().st_size for file in files if file.name.endswith(_WEIGHTS))
    if size <= SMALL_BYTES and not made.narrow:
        made.notes.append(f"the pretrained weights are small ({size / 2**20:.0f} MiB): used as they are")
        return
    config = json.loads((origin / CONFIG).read_text(encoding="utf-8"))
    changes = list(cut_config(config, narrow=made.narrow))
    folder = inputs / STAND_IN
    folder.mkdir()
    (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    for file in files:
        if file.name != CONFIG and not file.name.endswith(_WEIGHTS):
            os.symlink(file.resolve(), folder / file.name)
    _fill(folder, made.workload["model"])
    made.workload["model"]["weights"] = f"input:{STAND_IN}"
    made.notes.append(
        f"pretrained weights of {size / 2**30:.1f} GiB -> fresh ones ({', '.join(changes) or 'as large'})"
    )
    made.open.append("the values of the pretrained weights")


def _fill(folder: Path, model: dict[str, Any]) -> None:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    auto_class(model.get("task", "causal_lm")).from_config(config).save_pretrained(folder)
