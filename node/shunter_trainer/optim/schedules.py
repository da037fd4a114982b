"""The learning rate of a step: a pure function of the step, so that nothing about it needs to be saved."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Factor = Callable[[int], float]
"""From a step (the first is 1) to a share of the peak learning rate."""


def schedule_factor(document: Any, total_steps: int) -> Factor | None:
    """Warm-up in a straight line from 0, then the document's shape down to `min_lr_ratio` at the last step.

    Warm-up step `s` of `w` has the share `s / w`: step `w` is the first at the peak. None where nothing ever moves:
    then an optimizer that adapts its own learning rate is left to do so.
    """
    warmup = warmup_steps(document, total_steps)
    if document.kind == "constant" and warmup == 0:
        return None
    decay = _SHAPES[document.kind](document, total_steps)
    floor = getattr(document, "min_lr_ratio", 0.0)
    span = max(total_steps - warmup, 1)

    def factor(step: int) -> float:
        if step <= warmup:
            return step / warmup
        passed = min((step - warmup) / span, 1.0)
        return floor + (1.0 - floor) * decay(passed)

    return factor


def warmup_steps(document: Any, total_steps: int) -> int:
    """As given, or as a share of all steps."""
    if document.warmup_steps is not None:
        return int(document.warmup_steps)
    return round((document.warmup_ratio or 0.0) * total_steps)


_Decay = Callable[[float], float]
"""From the share of the time after warm-up (0 to 1) to the share of the way between floor and peak."""


def _constant(document: Any, total_steps: int) -> _Decay:
    return lambda passed: 1.0


def _linear(document: Any, total_steps: int) -> _Decay:
    return lambda passed: 1.0 - passed


def _cosine(document: Any, total_steps: int) -> _Decay:
    return lambda passed: 0.5 * (1.0 + math.cos(math.pi * passed))


def _wsd(document: Any, total_steps: int) -> _Decay:
    """Warm-up, stable, decay: at the peak until the last `decay_ratio` of all steps, then a straight line down."""
    span = max(total_steps - warmup_steps(document, total_steps), 1)
    share = min(max(document.decay_ratio * total_steps / span, 1.0 / span), 1.0)
    return lambda passed: min((1.0 - passed) / share, 1.0)


_SHAPES: dict[str, Callable[[Any, int], _Decay]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "wsd": _wsd,
}
