"""`hints`: what the planner should know of a model that only the user's own code builds."""

from __future__ import annotations

from pydantic import Field

from shunter_schemas.base import Count, Part, Positive


class Hints(Part):
    """What the planner should know of the program; enables the memory check."""

    parameters: Positive | None = Field(default=None, description="Parameters of the model.", examples=[7.6e9])
    layers: Count | None = Field(default=None, description="Number of blocks.", examples=[28])
    hidden: Count | None = Field(default=None, description="Width of the model.", examples=[3584])
    memory_gib: Positive | None = Field(
        default=None,
        description="Peak memory of one rank in GiB, where it is known: offers whose GPUs have less are not taken.",
        examples=[62.5],
    )
    sequence_length: Count | None = Field(default=None, description="Tokens of one sample.", examples=[4096])
