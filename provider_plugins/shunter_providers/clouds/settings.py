"""What the settings of every cloud have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, HttpUrl, TypeAdapter


def _base_url(text: str) -> str:
    TypeAdapter(HttpUrl).validate_python(text)
    return text.rstrip("/")


BaseUrl = Annotated[str, AfterValidator(_base_url)]
"""Without the slash at its end."""


class CloudSettings(BaseModel):
    """Settings that a plugin's own model adds to."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    timeout_s: float = Field(default=20.0, gt=0, le=60)
    """How long one answer of the API may take."""
