"""A `huggingface` model against itself, its loss and what is measured of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shunter_schemas.faults import Fault
from shunter_schemas.job import JobSpec
from shunter_schemas.models import HuggingFaceModel
from shunter_schemas.training import TrainingWorkload

_LOSSES = {
    "causal_lm": ("causal_lm", "python"),
    "image_classification": ("cross_entropy", "mse", "python"),
    "sequence_classification": ("cross_entropy", "mse", "python"),
}
"""The losses that fit a task, the usual one first."""


def _origin(model: HuggingFaceModel, training: TrainingWorkload) -> Iterator[Fault]:
    if model.weights is not None:
        return
    kind = (model.config or {}).get("model_type")
    if model.config is None:
        detail = "neither `weights` nor `config` is given"
        yield Fault("/workload/model", f"{detail}; name pretrained weights, or a `config` with its `model_type`")
    elif not isinstance(kind, str) or not kind:
        yield Fault(
            "/workload/model/config", '`model_type` is missing, such as "llama"; without `weights` it is needed'
        )


def _loss(model: HuggingFaceModel, training: TrainingWorkload) -> Iterator[Fault]:
    fitting = _LOSSES[model.task]
    if training.loss is not None and training.loss.kind not in fitting:
        detail = f"`{training.loss.kind}` does not fit /workload/model/task {model.task!r}"
        yield Fault("/workload/loss/kind", f"{detail}; use {fitting[0]}, or leave `loss` out for the model's own")


def _adapter(model: HuggingFaceModel, training: TrainingWorkload) -> Iterator[Fault]:
    adapter = training.adapter
    places: dict[str, int] = {}
    for index, name in enumerate(adapter.targets if adapter is not None else ()):
        if name in places:
            detail = f"{name!r} is given already (/workload/adapter/targets/{places[name]})"
            yield Fault(f"/workload/adapter/targets/{index}", f"{detail}; leave it out")
        places[name] = index


_Check = Callable[[HuggingFaceModel, TrainingWorkload], Iterator[Fault]]


def _for_huggingface(check: _Check) -> Callable[[JobSpec], Iterator[Fault]]:
    def checked(job: JobSpec) -> Iterator[Fault]:
        training = job.workload
        if isinstance(training, TrainingWorkload) and isinstance(training.model, HuggingFaceModel):
            yield from check(training.model, training)

    return checked


CHECKS = tuple(_for_huggingface(check) for check in (_origin, _loss, _adapter))
