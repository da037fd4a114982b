"""How a job came back after a loss."""

from __future__ import annotations

from pydantic import Field

from shunter_schemas.api.base import Answer, Timestamp

_AT = "2026-11-30T04:53:15.123Z"


class RecoveryPhase(Answer):
    """A part of the way back after a loss."""

    name: str = Field(
        description="`noticed` (until the service had decided), `stopped` (the ranks that lived were stopped and had "
        "saved), `provisioned` (new nodes were made), `bootstrapped` (their agents reported), `met` (the nodes had "
        "found each other), `ranks_up`, `loaded` (the checkpoint), `first_step` (its first point); an open list.",
        examples=["provisioned"],
    )
    seconds: float = Field(description="How long it took.", examples=[14.2])


class RecoveryTimes(Answer):
    """From a loss to the first step after it."""

    lost_at: Timestamp = Field(
        description="When the first rank failed; of a node that went without a word, when it was heard last.",
        examples=[_AT],
    )
    resumed_at: Timestamp | None = Field(
        default=None, description="When its first metric point was made. Null: it has not come so far.", examples=[_AT]
    )
    seconds: float = Field(description="From the loss to the end of the last phase that is over.", examples=[31.8])
    phases: tuple[RecoveryPhase, ...] = Field(
        default=(),
        description="What the time was spent on, in order, as far as it has come; those that were not needed are left "
        "out.",
        examples=[[{"name": "noticed", "seconds": 0.4}, {"name": "stopped", "seconds": 2.1}]],
    )
