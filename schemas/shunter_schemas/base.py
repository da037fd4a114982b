"""What every part of the job document has in common: strictness, bounded scalars, and unions told apart by shape."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag
from pydantic.config import JsonDict

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

PATTERN_WORDS: Final[dict[str, str]] = {}
"""What a pattern means, for people; filled by `text_like`."""


def text_like(pattern: str, words: str, *, max_length: int | None = None) -> StringConstraints:
    """A text that matches `pattern`; `words` go on from "this …" when it does not."""
    PATTERN_WORDS[pattern] = words
    return StringConstraints(pattern=pattern, max_length=max_length)


_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_DOTTED = rf"{_IDENTIFIER}(\.{_IDENTIFIER})*"

CLOSED_KEYS: Final[JsonDict] = {"additionalProperties": False}
"""For `json_schema_extra` of a mapping whose keys have a pattern: without it JSON Schema lets other keys pass."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Path = Annotated[
    str,
    text_like(
        r"^([^/\x00-\x1f\\][^\x00-\x1f\\]*)$",
        "must be a relative path, or `input:NAME[/path]`",
        max_length=1024,
    ),
]
"""A path relative to the source, or `input:NAME[/path]`."""
Slug = Annotated[
    str,
    text_like(
        r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
        "must be 1 to 63 letters, digits and `._-`, with a letter or digit at both ends",
    ),
]
Name = Annotated[
    str,
    text_like(
        r"^[A-Za-z0-9]([A-Za-z0-9 ._-]{0,61}[A-Za-z0-9])?$",
        "must be 1 to 63 letters, digits, spaces and `._-`, with a letter or digit at both ends",
    ),
]
"""A label for people; ASCII, since it also becomes a tag at providers."""
SecretName = Annotated[
    str, text_like(r"^[A-Z][A-Z0-9_]{0,62}$", "must be the name of a stored secret, such as HF_TOKEN")
]
VariableName = Annotated[str, text_like(r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", "must be a name of letters, digits and `_`")]
Target = Annotated[str, text_like(rf"^{_DOTTED}:{_DOTTED}$", "must be `package.module:name`", max_length=512)]
"""`package.module:name` in the source or in an installed package; imported on the node only."""
