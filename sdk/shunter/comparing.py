"""What is different between two job documents, by path; a default that is written out is no difference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError
from shunter_schemas.faults import pointer
from shunter_schemas.job import load_job

ABSENT = object()
"""Stands for a member that one of the documents has not."""


class Difference(NamedTuple):
    """One place, and what stands there in either."""

    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        if self.old is ABSENT:
            return f"+ {self.path}: {_text(self.new)}"
        if self.new is ABSENT:
            return f"- {self.path}: {_text(self.old)}"
        return f"~ {self.path}: {_text(self.old)} -> {_text(self.new)}"

    def as_data(self) -> dict[str, Any]:
        """For programs; a side that has no such member is left out."""
        sides = {"old": self.old, "new": self.new}
        return {"pointer": self.path, **{name: value for name, value in sides.items() if value is not ABSENT}}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Where two documents say something else, in the order of the first."""
    return list(_compared(whole(old), whole(new), ()))


def whole(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with its defaults; as it stands where it is not valid."""
    try:
        return load_job(document).model_dump(mode="json", by_alias=True)
    except ValidationError:
        return document


def _compared(old: Any, new: Any, path: tuple[str | int, ...]) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys((*old, *new)):
            yield from _compared(old.get(name, ABSENT), new.get(name, ABSENT), (*path, name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _compared(before, after, (*path, index))
    elif {_is_nothing(old), _is_nothing(new)} == {True}:
        return
    elif old != new or type(old) is not type(new):
        yield Difference(pointer(path), old, new)


def _is_nothing(value: Any) -> bool:
    """A member that is not there says as much as one that is null or empty."""
    return value is ABSENT or value is None or value in ([], {})


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
