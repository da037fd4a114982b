"""`config.json` of a model whose weights lie in a folder of this machine: all that a plan needs of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shunter_schemas.posted import is_local_path

from shunter.document import Document
from shunter.errors import InvalidDocument

CONFIG: Final = "config.json"


def with_model_config(document: Mapping[str, Any], base: Path, config: Path | None = None) -> Document:
    """The document whose `workload.model.config` says everything that the weights' own configuration says.

    Relative folders lie in `base`. `config`: that file instead of the one beside the weights.

    Raises:
        InvalidDocument: `config` cannot be read.
    """
    workload = document.get("workload")
    model = workload.get("model") if isinstance(workload, dict) else None
    if not isinstance(workload, dict) or not isinstance(model, dict) or model.get("kind") != "huggingface":
        return dict(document)
    file = config or _beside_weights(document, model, base)
    if file is None:
        return dict(document)
    stored = _read(file, must=config is not None)
    asked = model.get("config")
    merged = {**stored, **asked} if isinstance(asked, dict) else stored
    return {**document, "workload": {**workload, "model": {**model, "config": merged}}} if merged else dict(document)


def _beside_weights(document: Mapping[str, Any], model: Mapping[str, Any], base: Path) -> Path | None:
    weights = model.get("weights")
    if not isinstance(weights, str):
        return None
    if not weights.startswith("input:"):
        source = document.get("source")
        folder = source.get("path", ".") if isinstance(source, dict) and source.get("kind") == "folder" else None
        return base / folder / weights / CONFIG if isinstance(folder, str) else None
    name, _, rest = weights.removeprefix("input:").partition("/")
    inputs = document.get("inputs")
    entry = inputs.get(name) if isinstance(inputs, dict) else None
    origin = entry.get("from") if isinstance(entry, dict) else None
    return base / origin / rest / CONFIG if isinstance(origin, str) and is_local_path(origin) else None


def _read(file: Path, *, must: bool) -> dict[str, Any]:
    """Nothing where a file that need not be there cannot be read: then the plan says that the size is not known."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        if must:
            raise InvalidDocument(f"{file}: {getattr(error, 'strerror', None) or error}") from error
        return {}
    if must and not isinstance(found, dict):
        raise InvalidDocument(f"{file} holds no object; a model's config.json is one")
    return found if isinstance(found, dict) else {}
