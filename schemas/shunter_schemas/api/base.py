"""What the API's answers have in common."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, PlainSerializer, WithJsonSchema


class Answer(BaseModel):
    """Something that the API answers. `/v1` only gains fields, so readers ignore those they do not know."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", allow_inf_nan=False, validate_by_name=True, serialize_by_alias=True
    )


def _as_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def rfc3339(moment: datetime) -> str:
    """A moment as every answer writes it: UTC, milliseconds, `Z`."""
    in_utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return in_utc.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


Timestamp = Annotated[
    AwareDatetime,
    AfterValidator(_as_utc),
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A moment with a time zone; JSON shows it in UTC with milliseconds and `Z`."""
