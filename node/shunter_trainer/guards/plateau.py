"""Early stopping: the training has succeeded when evaluations no longer get better."""

from __future__ import annotations

import math
from collections.abc import Mapping

from shunter_schemas.oversight import EarlyStopping, is_better

_BEST = "early_stopping_best"
_WITHOUT = "early_stopping_evaluations_without_better"


class PlateauGuard:
    """Every rank sees the same values, so all of them end at the same step."""

    def __init__(self, document: EarlyStopping) -> None:
        self._document = document
        self._best: float | None = None
        self._without = 0

    def check(self, step: int, values: Mapping[str, float]) -> str | None:
        """After an evaluation: why the training ends here, or None when it goes on. A value of NaN is no better."""
        document = self._document
        value = values.get(document.metric)
        if value is None:
            return None
        better = self._best is None or is_better(document.metric, value, self._best, document.min_delta)
        if better and not math.isnan(value):
            self._best, self._without = value, 0
        else:
            self._without += 1
        if self._without < document.patience:
            return None
        best = "it never was a number" if self._best is None else f"best {self._best:.6g}, now {value:.6g}"
        by = f" by more than {document.min_delta:g}" if document.min_delta else ""
        times = "the last evaluation" if self._without == 1 else f"the last {self._without} evaluations"
        return f"stopped early at step {step}: {document.metric} did not get better{by} in {times} ({best})"

    def memory(self) -> dict[str, float]:
        """What a checkpoint has to keep."""
        return {_WITHOUT: float(self._without)} | ({} if self._best is None else {_BEST: self._best})

    def recall(self, memory: Mapping[str, float]) -> None:
        """Go on from what a checkpoint kept."""
        self._best, self._without = memory.get(_BEST), int(memory.get(_WITHOUT, 0))
