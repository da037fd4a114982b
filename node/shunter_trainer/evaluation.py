"""Values over the validation data. The same samples in each evaluation, and the same result on any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.distributed as dist
from shunter_schemas.training import TrainingWorkload
from torch import Tensor

from shunter_trainer.data.geometry import Geometry
from shunter_trainer.data.items import Rows
from shunter_trainer.data.order import Indices, sample_indices
from shunter_trainer.data.samples import Samples
from shunter_trainer.data.stream import move
from shunter_trainer.failures import UserFault
from shunter_trainer.gang import Gang
from shunter_trainer.models.objective import Objective, labels, prediction
from shunter_trainer.strategies.base import Strategy

_TOP = {"top1": 1, "top5": 5}


class Evaluator:
    """Runs the model over its validation samples."""

    def __init__(
        self, samples: Samples, workload: TrainingWorkload, objective: Objective, geometry: Geometry, gang: Gang
    ) -> None:
        self._samples = samples
        self._gang = gang
        self._micro_size = geometry.micro_size
        self._tops = [name for name in workload.metrics if name in _TOP]
        if self._tops and not objective.classifies:
            raise UserFault("/workload/metrics", f"{self._tops[0]} needs workload.loss of kind cross_entropy")
        self._perplexity = samples.tokens_per_sample > 0 or "perplexity" in workload.metrics
        batches = workload.evaluation.batches if workload.evaluation else None
        count = min(len(samples), batches * geometry.global_size) if batches else len(samples)
        self._indices = sample_indices(np.arange(count, dtype=np.int64), len(samples), workload.seed)

    def run(self, strategy: Strategy, beat: Callable[[], None]) -> dict[str, float]:
        """All values by name. Every rank calls it at the same step; `beat` is called after each micro-batch."""
        sums = torch.zeros(2 + len(self._tops), dtype=torch.float64, device=self._gang.device)
        with strategy.evaluating():
            for batch, weight in self._batches():
                outputs, loss = strategy.outputs(batch)
                if weight:
                    sums += self._measure(outputs, loss, batch, weight)
                beat()
        if self._gang.world_size > 1:
            dist.all_reduce(sums)
        return self._values(sums.tolist())

    def _batches(self) -> Iterator[tuple[Rows, int]]:
        """This rank's micro-batches and their weights: as many on every rank, without weight where samples run out."""
        step = self._micro_size * self._gang.world_size
        for start in range(0, len(self._indices), step):
            first = start + self._gang.rank * self._micro_size
            own = self._indices[first : min(first + self._micro_size, start + step)]
            chosen = own if len(own) else self._indices[:1]
            rows = move(self._samples.take(chosen, np.zeros_like(chosen)), self._gang.device)
            yield rows, self._weight(own) if len(own) else 0

    def _weight(self, own: Indices) -> int:
        targets = self._samples.targets(own)
        return len(own) if targets is None else int(targets.sum())

    def _measure(self, outputs: object, loss: Tensor, batch: Rows, weight: int) -> Tensor:
        values = [loss.double() * weight, torch.tensor(float(weight), device=loss.device)]
        for name in self._tops:
            logits, targets = prediction(outputs), labels(batch)
            best = logits.topk(min(_TOP[name], logits.shape[-1]), dim=-1).indices
            values.append((best == targets.unsqueeze(-1)).any(-1).double().mean() * weight)
        return torch.stack([value.reshape(()).double() for value in values])

    def _values(self, sums: list[float]) -> dict[str, float]:
        total, weight, *tops = sums
        loss = total / weight if weight else math.nan
        values = {"val_loss": loss}
        if self._perplexity:
            values["val_perplexity"] = math.exp(min(loss, 700.0)) if math.isfinite(loss) else math.nan
        for name, right in zip(self._tops, tops, strict=True):
            values[f"val_{name}"] = right / weight
        return values
