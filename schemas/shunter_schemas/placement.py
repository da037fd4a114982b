"""`placement`: where the job may run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from shunter_schemas.base import CLOSED_KEYS, Part, Slug, text_like

Jurisdiction = Annotated[str, text_like(r"^(EEA|[A-Z]{2})$", "must be EU, EEA or an ISO country code of two capitals")]
Region = Annotated[str, text_like(r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,126}$", "must be the name of a region")]


class Placement(Part):
    """Restrictions hold at plan, create, recovery and reuse, and for logs, checkpoints and artifacts."""

    providers: Annotated[tuple[Slug, ...], Field(max_length=64)] = Field(
        default=(),
        description="Configured provider instances that may be used. Empty: all.",
        examples=[["runpod", "lambda"]],
    )
    jurisdictions: Annotated[tuple[Jurisdiction, ...], Field(max_length=64)] = Field(
        default=(), description="`EU`, `EEA` or ISO country codes. Empty: anywhere.", examples=[["EU"]]
    )
    regions: Annotated[tuple[Region, ...], Field(max_length=64)] = Field(
        default=(),
        description="Regions by the provider's own names. Empty: any.",
        examples=[["eu-central-1"]],
    )
    objective: Literal["cost", "time", "balanced"] = Field(
        default="cost", description="What the choice among offers favours.", examples=["cost"]
    )
    options: dict[Slug, dict[str, JsonValue]] = Field(
        default_factory=dict,
        json_schema_extra=CLOSED_KEYS,
        description="Options by provider instance, checked by its plugin.",
        examples=[{"slurm-a": {"qos": "long"}}],
    )
