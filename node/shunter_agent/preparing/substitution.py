"""`${…}` in arguments and variables, replaced from a closed set and without a shell."""

from __future__ import annotations

import re
from typing import Mapping, Sequence

_PLACE = re.compile(r"\$\{([^{}]*)\}")


class UnknownName(ValueError):
    """A `${…}` that names nothing, or something that this job does not have."""


def substitute(text: str, values: Mapping[str, str]) -> str:
    """The text with each `${name}` replaced; what a value holds is not looked at again.

    Raises:
        UnknownName: a name is not among the values.
    """

    def value(match: re.Match[str]) -> str:
        try:
            return values[match[1]]
        except KeyError:
            raise UnknownName(f"{match[0]} is not known here; known: {', '.join(sorted(values))}") from None

    return _PLACE.sub(value, text)


def substitute_all(texts: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Each text with its names replaced."""
    return [substitute(text, values) for text in texts]


def substitute_values(variables: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """The variables with the names in their values replaced."""
    return {name: substitute(text, values) for name, text in variables.items()}
