"""What is wrong with a document, and where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

MAX_FAULTS: Final = 100
"""As many faults as one refusal lists; a document of a megabyte could have a hundred thousand."""


class Fault(NamedTuple):
    """One thing that is wrong.

    `pointer` is an RFC 6901 pointer that resolves in the user's own document: a missing member is reported at the
    object that lacks it. `detail` never repeats a value that may be secret.
    """

    pointer: str
    detail: str


class DocumentError(Exception):
    """A document is refused. `parseable` is false when it is not JSON that can be read at all."""

    def __init__(self, faults: Iterable[Fault], *, parseable: bool = True) -> None:
        self.faults = list(faults)
        self.parseable = parseable
        super().__init__("; ".join(f"{fault.pointer or '(document)'}: {fault.detail}" for fault in self.faults))


def pointer(path: Sequence[str | int]) -> str:
    """An RFC 6901 pointer."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def nearest_existing(where: str, document: Any) -> str:
    """The pointer, cut back to what exists in the document (a default has no place in it)."""
    found: list[str] = []
    value = document
    for token in where.split("/")[1:]:
        step = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            break
        found.append(token)
    return "".join(f"/{token}" for token in found)
