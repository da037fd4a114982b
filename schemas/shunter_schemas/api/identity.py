"""Who asks, and what the kinds of problems mean."""

from __future__ import annotations

from pydantic import Field

from shunter_schemas.api.base import Answer, Timestamp


class Me(Answer):
    """The key that was sent, and what it allows."""

    name: str = Field(description="The key's name.", examples=["local"])
    project: str = Field(description="The project that it belongs to.", examples=["default"])
    scopes: tuple[str, ...] = Field(description="What it allows.", examples=[["jobs:read", "jobs:write"]])
    created_at: Timestamp = Field(description="When it was made.", examples=["2026-11-30T04:53:15.123Z"])


class ProblemKind(Answer):
    """What a problem's `type` means."""

    type: str = Field(description="The `type` of such problems.", examples=["/v1/problems/invalid_document"])
    status: int = Field(description="Their HTTP status.", examples=[422])
    title: str = Field(description="Their title.", examples=["The job document is not valid"])
    meaning: str | None = Field(
        default=None,
        description="When there are such problems.",
        examples=["The document is JSON and no job document."],
    )
    way_out: str | None = Field(
        default=None, description="What to do then.", examples=["`errors` names every fault with a pointer."]
    )


class ReasonKind(Answer):
    """What a job's `reason` means."""

    reason: str = Field(description="The `reason` of such jobs.", examples=["out_of_memory"])
    ends: str = Field(description="How such jobs end.", examples=["failed"])
    meaning: str = Field(description="Why they ended.", examples=["a rank ran out of memory"])
    way_out: str = Field(default="", description="What to do then.", examples=["use a smaller `batch.micro_size`"])
