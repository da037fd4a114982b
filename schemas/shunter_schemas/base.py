"""What every part of the job document has in common: strictness, bounded scalars, and unions told apart by shape."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

LARGEST_INT = 2**53 - 1
"""The largest integer that every JSON reader holds exactly."""


class Part(BaseModel):
    """A part of the job document: frozen, closed, and strict about types (`true` is no number, `"1"` neither)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)


def shape(value: Any) -> str:
    """The JSON type of a value in words; unions of a scalar and something else are told apart by it."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, dict | BaseModel):
        return "object"
    return "list" if isinstance(value, list | tuple) else "null"


BY_SHAPE = Discriminator(shape)
"""Marks a union whose members carry `Tag("text" | "number" | "object" | "list" | "boolean")`."""

Count = Annotated[int, Field(ge=1, le=LARGEST_INT)]
CountOrZero = Annotated[int, Field(ge=0, le=LARGEST_INT)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
OpenFraction = Annotated[float, Field(gt=0, lt=1)]

AutoOrCount = Annotated[
    Annotated[Literal["auto"], Tag("text")] | Annotated[Count, Tag("number")],
    BY_SHAPE,
]
AutoOrPositive = Annotated[
    Annotated[Literal["auto"], Tag("text")] | Annotated[Positive, Tag("number")],
    BY_SHAPE,
]

Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Path = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
"""A path relative to the source, or `input:NAME[/path]`."""
Slug = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9 ._-]{0,61}[A-Za-z0-9])?$")]
"""A label for people; ASCII, since it also becomes a tag at providers."""
SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,62}$")]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Target = Annotated[
    str,
    StringConstraints(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$",
        max_length=512,
    ),
]
"""`package.module:name` in the source or in an installed package; imported on the node only."""
