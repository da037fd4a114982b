"""The classes of the data and those of the model: a classifier gets as many as the data have, and their names."""

from __future__ import annotations

from typing import Any

from shunter_schemas.models import HuggingFaceModel
from shunter_schemas.training import TrainingWorkload

from shunter_trainer.failures import UserFault

Names = dict[str, Any]


def class_names(classes: tuple[str, ...] | None) -> Names:
    """Members of `config.json`: names by number, and numbers by name. Empty without classes."""
    if classes is None:
        return {}
    return {
        "id2label": {str(number): name for number, name in enumerate(classes)},
        "label2id": {name: number for number, name in enumerate(classes)},
    }


def with_classes(workload: TrainingWorkload, classes: tuple[str, ...] | None) -> TrainingWorkload:
    """The same training, its `huggingface` classifier with the classes of the data, unless the document names its own.

    Raises: UserFault when the document gives the model fewer classes than the data have.
    """
    model = workload.model
    if classes is None or not isinstance(model, HuggingFaceModel) or model.task == "causal_lm":
        return workload
    config = model.config or {}
    given = _count(config)
    if given is not None and given < len(classes):
        raise UserFault(
            "/workload/model/config",
            f"the model has {given} classes and the data {len(classes)}; leave their number out",
        )
    if (given is not None and given > len(classes)) or "id2label" in config:
        return workload
    named = {name: value for name, value in config.items() if name != "num_labels"} | class_names(classes)
    return workload.model_copy(update={"model": model.model_copy(update={"config": named})})


def _count(config: dict[str, Any]) -> int | None:
    number, names = config.get("num_labels"), config.get("id2label")
    if isinstance(number, int):
        return number
    return len(names) if isinstance(names, dict) else None
