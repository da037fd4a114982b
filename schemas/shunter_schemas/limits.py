"""`limits` and `recovery`: when the service stops a job, and how often it starts one again."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from shunter_schemas.base import Count, CountOrZero, Part, Positive

LONGEST_S: Final = 100 * 365 * 86_400
"""A hundred years: a moment so far ahead still is a date."""

Seconds = Annotated[float, Field(gt=0, le=LONGEST_S)]


class Limits(Part):
    """Caps that hold also while a node cannot reach the service."""

    max_cost_usd: Positive | None = Field(
        default=None,
        description="The job is stopped before it costs more. Null: the project's default.",
        examples=[250.0],
    )
    max_usd_per_hour: Positive | None = Field(
        default=None, description="Offers above this rate are not taken.", examples=[40.0]
    )
    max_duration_s: Seconds | None = Field(
        default=None, description="The job is stopped this long after it first ran.", examples=[86400]
    )
    max_queue_s: Seconds | None = Field(
        default=None,
        description="The job fails when it could not be placed for this long.",
        examples=[7200],
    )
    max_gpu_idle_s: Seconds | None = Field(
        default=None, description="The job is stopped when its GPUs idle for this long.", examples=[1800]
    )


class Recovery(Part):
    """What happens after a failure."""

    user_restarts: CountOrZero = Field(
        default=0, description="Restarts after an error of the user's own program.", examples=[0]
    )
    node_recoveries: CountOrZero = Field(
        default=10, description="Restarts after lost, preempted or broken nodes.", examples=[10]
    )
    min_gpus: Count | None = Field(
        default=None,
        description="The job may resume on fewer GPUs, down to this. Null: always on as many as it asked for.",
        examples=[8],
    )
