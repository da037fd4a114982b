"""What a model is: the folder's `config.json` and, over it, `workload.model.config` of the document."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shunter_schemas.models import HuggingFaceModel
from shunter_schemas.nearest import did_you_mean

from shunter_trainer.failures import UserFault
from shunter_trainer.places import Places

CONFIG = "config.json"
_POINTER = "/workload/model/config"
_WEIGHTS = "/workload/model/weights"
_AUTO_CLASSES = {
    "causal_lm": "AutoModelForCausalLM",
    "image_classification": "AutoModelForImageClassification",
    "sequence_classification": "AutoModelForSequenceClassification",
}
# Understood by every configuration without being a field of its class.
_COMMON = frozenset(
    {
        "model_type",
        "num_labels",
        "torch_dtype",
        "attn_implementation",
        "rope_theta",
        "rope_scaling",
        "tie_word_embeddings",
    }
    | {"partial_rotary_factor", "pad_token_id", "bos_token_id", "eos_token_id", "use_cache", "is_decoder"}
)
_LABEL_NAMES = ("id2label", "label2id")


def weights_folder(model: HuggingFaceModel, places: Places) -> Path | None:
    """Where the pretrained weights lie; None: the model starts from fresh ones.

    Raises: UserFault when there is no such folder.
    """
    if model.weights is None:
        return None
    try:
        return places.folder(model.weights, _WEIGHTS)
    except UserFault as fault:
        way_out = "nothing is downloaded from a hub: give `input:NAME`, a local folder with config.json and weights"
        raise UserFault(_WEIGHTS, f"{fault.message}; {way_out}") from None


def read_config(model: HuggingFaceModel, folder: Path | None, padding: int | None = None) -> Any:
    """The `PreTrainedConfig` of the model. `padding`: the id that fills its rows of tokens, where the data decide it.

    Raises: UserFault naming the member that is wrong, with the nearest known name.
    """
    stored = _stored(folder) if folder else {}
    asked = dict(model.config or {})
    merged = _merged(stored, asked)
    _refuse_foreign(merged, from_folder=folder is not None)
    kind = _config_class(merged)
    _refuse_unknown(asked, kind, stored)
    try:
        config = kind.from_dict(merged)
    except Exception as error:  # validators of the configuration classes raise of many kinds
        raise UserFault(_POINTER if asked else _WEIGHTS, _one_line(error)) from error
    _refuse_wrong_task(config, model.task)
    if padding is not None:
        config.get_text_config().pad_token_id = padding
    return config


def auto_class(task: str) -> Any:
    """The class of `transformers` that builds models for a task."""
    import transformers

    return getattr(transformers, _AUTO_CLASSES[task])


def _stored(folder: Path) -> dict[str, Any]:
    try:
        stored = json.loads((folder / CONFIG).read_bytes())
    except FileNotFoundError:
        held = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
        raise UserFault(_WEIGHTS, f"the folder has no {CONFIG} (it holds {held})") from None
    except (OSError, ValueError) as error:
        raise UserFault(_WEIGHTS, f"{CONFIG} cannot be read: {error}") from error
    if not isinstance(stored, dict):
        raise UserFault(_WEIGHTS, f"{CONFIG} must hold an object")
    return stored


def _merged(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """`asked` over `stored`, part by part; another number of labels takes the old labels' names away."""
    merged = dict(stored)
    for name, value in asked.items():
        below = stored.get(name)
        both = isinstance(value, dict) and isinstance(below, dict) and name not in _LABEL_NAMES
        merged[name] = {**below, **value} if both else value  # type: ignore[dict-item]  # both are mappings then
    count = asked.get("num_labels")
    for name in _LABEL_NAMES:
        if count is not None and name not in asked and len(stored.get(name) or ()) != count:
            merged.pop(name, None)
    return merged


def _refuse_foreign(merged: Mapping[str, Any], from_folder: bool) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if merged.get("quantization_config"):
        raise UserFault(_WEIGHTS, "the weights are quantised and cannot be trained; give those they were made from")
    if "auto_map" in merged and merged.get("model_type") not in CONFIG_MAPPING:
        raise UserFault(
            _WEIGHTS if from_folder else _POINTER,
            "the model is made of code of its own (`auto_map`), which is never run from a folder of weights; put the "
            "code into your source and name it by a `python` model",
        )


def _config_class(merged: Mapping[str, Any]) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = merged.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise UserFault(f"{_POINTER}/model_type", 'must name the architecture, such as "llama"')
    if kind not in CONFIG_MAPPING:
        guess = did_you_mean(kind, CONFIG_MAPPING.keys())
        raise UserFault(f"{_POINTER}/model_type", f"{kind!r} is not known to this version of transformers{guess}")
    return CONFIG_MAPPING[kind]


def _refuse_unknown(asked: Mapping[str, Any], kind: Any, stored: Mapping[str, Any]) -> None:
    """A name that no configuration reads would be ignored in silence."""
    known = _field_names(kind) | set(kind.attribute_map) | _COMMON | stored.keys()
    for name in asked:
        if name not in known and not _is_read(name, kind):
            guess = did_you_mean(name, known)
            raise UserFault(f"{_POINTER}/{name}", f"{kind.model_type!r} models have no such setting{guess}")


def _field_names(kind: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _is_read(name: str, kind: Any) -> bool:
    """Whether the code of the model speaks of a setting that is no field: some read such with `getattr`."""
    folder = Path(inspect.getfile(kind)).parent
    word = re.compile(rf"\b{re.escape(name)}\b")
    return any(word.search(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.py")))


def _refuse_wrong_task(config: Any, task: str) -> None:
    if type(config) not in auto_class(task)._model_mapping:
        able = _tasks_of(config)
        instead = f"; it can be {' or '.join(able)}" if able else ""
        raise UserFault("/workload/model/task", f"{config.model_type!r} models have no {task} form{instead}")


def _tasks_of(config: Any) -> list[str]:
    return [task for task in _AUTO_CLASSES if type(config) in auto_class(task)._model_mapping]


def _one_line(error: Exception) -> str:
    lines: Iterable[str] = (line.strip() for line in str(error).splitlines())
    return " ".join(line for line in lines if line) or type(error).__name__
