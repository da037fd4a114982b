"""From a batch to a loss: what the model is called with, and what its outputs are compared to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shunter_schemas.optimization import Loss
from torch import Tensor, nn
from torch.nn import functional as F

from shunter_trainer.data.samples import IGNORED
from shunter_trainer.failures import UserFault
from shunter_trainer.targets import load_target

Batch = Mapping[str, Any]
_Compute = Callable[[Any, Batch], Tensor]

_LABELS = ("labels", "label", "targets", "target", "y")


class Objective:
    """The loss of the document, for one model."""

    def __init__(
        self, loss: Loss | None, accepts: frozenset[str] | None, own_labels: bool, classifies: bool = False
    ) -> None:
        """`own_labels`: the model computes its loss itself when it is given `labels` (ours, those of `transformers`).

        `classifies`: this loss of its own is that of a classifier.
        """
        self._compute = _own_loss if loss is None else _COMPUTERS[loss.kind](loss)
        self._accepts = accepts - {"labels"} if accepts and own_labels and loss is not None else accepts
        self._gives_labels = loss is None and own_labels
        self.classifies = classifies if loss is None else loss.kind == "cross_entropy"
        """Whether there is one label a sample, and logits of as many classes."""

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch, a scalar."""
        return self.loss(self.outputs(model, batch), batch)

    def outputs(self, model: nn.Module, batch: Batch) -> Any:
        """What the model says to a batch; it is given what its `forward` takes."""
        if self._accepts is None:
            return model(**batch)
        given = {name: value for name, value in batch.items() if name in self._accepts}
        if self._gives_labels and "labels" not in given:
            given["labels"] = labels(batch)
        return model(**given)

    def loss(self, outputs: Any, batch: Batch) -> Tensor:
        """Raises: UserFault when this is no single number."""
        loss = self._compute(outputs, batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise UserFault("/workload/loss", f"the loss must be a tensor of one number, not {shape}")
        return loss if loss.ndim == 0 else loss.reshape(())


def prediction(outputs: Any) -> Tensor:
    """The tensor in a model's outputs: the outputs themselves, or their `logits`.

    Raises: UserFault when there is none.
    """
    if isinstance(outputs, Tensor):
        return outputs
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if isinstance(found, Tensor):
        return found
    raise UserFault("/workload/loss", f"needs a model that returns a tensor or `logits`, not {_describe(outputs)}")


def labels(batch: Batch) -> Tensor:
    """What a batch is compared to.

    Raises: UserFault when it holds nothing of a known name.
    """
    for name in _LABELS:
        if name in batch:
            found: Tensor = batch[name]
            return found
    raise UserFault("/workload/loss", f"needs one of {', '.join(_LABELS)} in each sample (it has {', '.join(batch)})")


def _own_loss(outputs: Any, batch: Batch) -> Tensor:
    found = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if found is None:
        raise UserFault("/workload/loss", f"must be given, since the model returns no `loss` but {_describe(outputs)}")
    loss: Tensor = found
    return loss


def _causal_lm(document: Any) -> _Compute:
    def compute(outputs: Any, batch: Batch) -> Tensor:
        targets = batch["labels"] if "labels" in batch else batch["input_ids"]
        logits = prediction(outputs)[:, :-1].float()
        return F.cross_entropy(
            logits.flatten(0, 1),
            targets[:, 1:].flatten(),
            ignore_index=IGNORED,
            label_smoothing=document.label_smoothing,
        )

    return compute


def _cross_entropy(document: Any) -> _Compute:
    def compute(outputs: Any, batch: Batch) -> Tensor:
        return F.cross_entropy(
            prediction(outputs).float(), labels(batch), ignore_index=IGNORED, label_smoothing=document.label_smoothing
        )

    return compute


def _mse(document: Any) -> _Compute:
    def compute(outputs: Any, batch: Batch) -> Tensor:
        return F.mse_loss(prediction(outputs).float(), labels(batch).float())

    return compute


def _python(document: Any) -> _Compute:
    function = load_target(document.target, "/workload/loss/target")

    def compute(outputs: Any, batch: Batch) -> Tensor:
        loss: Tensor = function(outputs, batch, **document.arguments)
        return loss

    return compute


def _describe(outputs: Any) -> str:
    if isinstance(outputs, Mapping):
        return f"a mapping with {', '.join(map(str, outputs))}"
    if isinstance(outputs, Tensor):
        return f"a tensor of shape {tuple(outputs.shape)}"
    return f"a {type(outputs).__name__}"


_COMPUTERS: dict[str, Callable[[Any], _Compute]] = {
    "causal_lm": _causal_lm,
    "cross_entropy": _cross_entropy,
    "mse": _mse,
    "python": _python,
}
