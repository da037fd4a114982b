"""`workload.data` against the model: what a sample is, and where its parts come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shunter_schemas.data import (
    HuggingFaceData,
    ImageFolderData,
    PythonData,
    SyntheticData,
    ValidationSplit,
    WebDatasetData,
)
from shunter_schemas.faults import Fault
from shunter_schemas.job import JobSpec
from shunter_schemas.models import HuggingFaceModel
from shunter_schemas.nearest import did_you_mean
from shunter_schemas.training import TrainingWorkload

_IMAGES = (ImageFolderData, WebDatasetData)
_ANYTHING = (PythonData, SyntheticData, WebDatasetData)


def _names_of_data_sets(job: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    for place, data in _parts(training):
        if not isinstance(data, HuggingFaceData):
            continue
        inside, _, rest = data.name.removeprefix("input:").partition("/")
        if data.name.startswith("input:"):
            if inside not in job.inputs:
                detail = f"there is no input of this name in `inputs`{did_you_mean(inside, job.inputs)}"
                yield Fault(f"{place}/name", detail)
        elif not data.name.startswith("./"):
            detail = "download it, give its folder as an input, and name it `input:NAME`"
            yield Fault(f"{place}/name", f"{data.name!r} is a name of the hub, which nodes do not reach; {detail}")
        elif job.source is None:
            detail = "this is a path in the source, and `source` is not given; add it, or use input:NAME"
            yield Fault(f"{place}/name", detail)
        if ".." in rest.split("/") + data.name.split("/"):
            yield Fault(f"{place}/name", "the path leaves its folder by `..`")
        if data.revision is not None:
            yield Fault(f"{place}/revision", "a folder has no revisions; leave it out")


def _tokenizer_of_the_model(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    weights = getattr(training.model, "weights", None)
    for place, data in _parts(training):
        if getattr(data, "tokenizer", None) == "model" and weights is None:
            detail = (
                f"`model` is the tokenizer of its `weights`, which this `{training.model.kind}` model does not have"
            )
            yield Fault(f"{place}/tokenizer", f"{detail}; use `bytes` or `input:NAME[/path]`")


def _samples_fit_the_task(_: JobSpec, training: TrainingWorkload) -> Iterator[Fault]:
    model = training.model
    task = model.task if isinstance(model, HuggingFaceModel) else "causal_lm" if model.kind == "transformer" else None
    for place, data in _parts(training):
        label = getattr(data, "label", None)
        if task is None or isinstance(data, _ANYTHING):
            continue
        if (task == "image_classification") != isinstance(data, _IMAGES):
            if model.kind != "transformer":
                yield Fault(f"{place}/kind", f"`{data.kind}` does not fit /workload/model/task {task!r}")
        elif task == "causal_lm" and label is not None:
            detail = "classes are for models that classify texts; leave it out"
            yield Fault(f"{place}/label", f"{detail}, or use a `huggingface` model with task 'sequence_classification'")
        elif task == "sequence_classification" and label is None:
            way_out = (
                "name the column of the classes" if hasattr(data, "label") else "use jsonl or parquet with `label`"
            )
            yield Fault(
                f"{place}/label" if hasattr(data, "label") else f"{place}/kind", f"{task!r} needs classes; {way_out}"
            )


def _parts(training: TrainingWorkload) -> Iterator[tuple[str, Any]]:
    """The training data and validation data of their own, with their places."""
    yield "/workload/data", training.data
    validation = training.data.validation
    if validation is not None and not isinstance(validation, ValidationSplit):
        yield "/workload/data/validation", validation


_Check = Callable[[JobSpec, TrainingWorkload], Iterator[Fault]]


def _for_training(check: _Check) -> Callable[[JobSpec], Iterator[Fault]]:
    def checked(job: JobSpec) -> Iterator[Fault]:
        if isinstance(job.workload, TrainingWorkload):
            yield from check(job, job.workload)

    return checked


CHECKS = tuple(_for_training(check) for check in (_names_of_data_sets, _tokenizer_of_the_model, _samples_fit_the_task))
