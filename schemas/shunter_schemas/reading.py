"""Bytes to a JSON value, with everything refused that readers of JSON disagree about.

Runs before any other parser sees the bytes, so that no depth, number or character in a document can hurt one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from math import isinf
from typing import Any, Final

from shunter_schemas.faults import MAX_FAULTS, DocumentError, Fault, pointer

MAX_DOCUMENT_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 64
_MAX_INTEGER_DIGITS: Final = 19

_OUTSIDE_STRINGS = re.compile(rb'[\[{\]}]|"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_UNUSABLE_TEXT = re.compile("[\x00\ud800-\udfff]")


class _Repeated(dict[str, Any]):
    """An object in which some keys stood more than once."""

    keys_twice: tuple[str, ...] = ()


class _BadNumber:
    """Stands for a number that is refused, until its place is known."""

    def __init__(self, detail: str) -> None:
        self.detail = detail


def read_json(body: bytes) -> Any:
    """The value of a JSON document.

    Raises:
        DocumentError: not UTF-8, not JSON, or too deep (`parseable` is false); repeated keys, NUL, lone surrogates, or
            numbers that no double or 64-bit integer holds.
    """
    text = _text(body)
    _check_depth(body)
    hooks = _Hooks()
    try:
        value = json.loads(
            text,
            object_pairs_hook=hooks.take_object,
            parse_constant=_refuse_constant,
            parse_int=hooks.take_integer,
            parse_float=hooks.take_real,
        )
    except json.JSONDecodeError as error:
        detail = f"not JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}"
        if not text.strip():
            detail = "not JSON: it is empty"
        raise DocumentError([Fault("", detail)], parseable=False) from None
    if hooks.found_any or "\\u" in text:  # NUL and surrogates can only stand in JSON as escapes
        faults = list(islice(_unusable(value, ()), MAX_FAULTS))
        if faults:
            raise DocumentError(faults)
    return value


def _text(body: bytes) -> str:
    if body.startswith(b"\xef\xbb\xbf"):
        raise DocumentError([Fault("", "not JSON: it begins with a byte order mark; save it without")], parseable=False)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError([Fault("", f"not UTF-8 at byte {error.start}")], parseable=False) from None


def _check_depth(body: bytes) -> None:
    depth = 0
    for match in _OUTSIDE_STRINGS.finditer(body):
        first = match.group()[0]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise DocumentError([Fault("", f"nested deeper than {MAX_DEPTH} levels")], parseable=False)
        elif first in b"]}":
            depth -= 1


def _refuse_constant(name: str) -> Any:
    raise DocumentError([Fault("", f"not JSON: {name} is no JSON number")], parseable=False)


class _Hooks:
    """Takes values from the parser, and marks those that are refused; their places are looked up afterwards."""

    def __init__(self) -> None:
        self.found_any = False

    def take_object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        self.found_any = True
        repeated = _Repeated(members)
        repeated.keys_twice = tuple(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return repeated

    def take_integer(self, digits: str) -> int | _BadNumber:
        if len(digits) <= _MAX_INTEGER_DIGITS + digits.startswith("-"):
            return int(digits)
        self.found_any = True
        return _BadNumber(f"an integer of {len(digits.lstrip('-'))} digits is out of range")

    def take_real(self, digits: str) -> float | _BadNumber:
        value = float(digits)
        if not isinf(value):
            return value
        self.found_any = True
        return _BadNumber("the number is out of range")


def _unusable(value: Any, path: tuple[str | int, ...]) -> Iterator[Fault]:
    if isinstance(value, _BadNumber):
        yield Fault(pointer(path), value.detail)
    elif isinstance(value, str) and _UNUSABLE_TEXT.search(value):
        yield Fault(pointer(path), "the text holds NUL or half of a surrogate pair")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unusable(item, (*path, index))
    elif isinstance(value, dict):
        yield from _unusable_object(value, path)


def _unusable_object(value: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[Fault]:
    for key in getattr(value, "keys_twice", ()):
        if not _UNUSABLE_TEXT.search(key):
            yield Fault(pointer((*path, key)), "the key stands here more than once")
    for key, item in value.items():
        if _UNUSABLE_TEXT.search(key):
            yield Fault(pointer(path), "a key holds NUL or half of a surrogate pair")
        else:
            yield from _unusable(item, (*path, key))
