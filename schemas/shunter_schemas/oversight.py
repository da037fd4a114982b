"""`workload.guards`, `.profile` and `.evaluation.early_stopping`: what is watched, and when a training ends early."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from pydantic import Field

from shunter_schemas.base import Count, NotNegative, Part, Positive, Slug

HIGHER_IS_BETTER: Final = frozenset({"val_top1", "val_top5"})
"""Of all others, such as losses and perplexity, a lower value is the better one."""


def is_better(name: str, value: float, best: float, min_delta: float = 0.0) -> bool:
    """Whether `value` of this metric beats `best` by more than `min_delta`."""
    return value > best + min_delta if name in HIGHER_IS_BETTER else value < best - min_delta


def evaluated_names(metrics: Iterable[str]) -> tuple[str, ...]:
    """What an evaluation measures for certain, given `workload.metrics`."""
    return ("val_loss", *(f"val_{name}" for name in metrics))


class EarlyStopping(Part):
    """Ends the training, with success, when evaluations no longer get better."""

    metric: Slug = Field(
        default="val_loss",
        description="`val_loss`, or `val_…` of one of `workload.metrics`. Accuracies are to rise, others to fall.",
        examples=["val_loss"],
    )
    patience: Count = Field(description="End after this many evaluations in a row without a new best.", examples=[3])
    min_delta: NotNegative = Field(
        default=0.0, description="A new best must beat the old one by more than this.", examples=[0.001]
    )


class LossSpikes(Part):
    """A loss far above those before it: more than `deviations` robust deviations over the median of the window."""

    action: Literal["warn", "stop", "ignore"] = Field(
        default="warn",
        description="`warn`: an event and the metric `loss_spikes`. `stop`: end the training with a failure.",
        examples=["warn"],
    )
    deviations: Positive = Field(
        default=12.0,
        description="How far above the median, in robust standard deviations (1.48 times the median deviation).",
        examples=[12],
    )
    window_steps: int = Field(
        default=64, ge=8, le=4096, description="Over how many steps the median is taken.", examples=[64]
    )


class Guards(Part):
    """What is watched, and what happens when it is found."""

    non_finite_steps: Count = Field(
        default=5,
        description="End the training after this many steps in a row whose loss or gradients are not finite. "
        "The updates of such steps are left out.",
        examples=[5],
    )
    loss_spikes: LossSpikes = Field(default=LossSpikes(), description="Sudden losses.", examples=[{"action": "warn"}])
    hang_s: Positive | None = Field(
        default=None,
        description="A step that takes longer than this hangs: where every rank stands is logged, and the gang is "
        "started again. Null: 20 times the usual step, but a minute at least.",
        examples=[600],
    )


class Profile(Part):
    """Traces some steps with torch's profiler; the trace is left among the artifacts, in `profile/`."""

    first_step: Count = Field(default=10, description="The first step that is traced.", examples=[10])
    last_step: Count = Field(default=12, description="The last one. Traces grow with each step.", examples=[12])
    ranks: Literal["first", "all"] = Field(default="first", description="Rank 0, or every rank.", examples=["first"])
    memory: bool = Field(default=False, description="Trace allocations too.", examples=[False])
    stacks: bool = Field(default=False, description="Note the Python stack of each operation.", examples=[False])
