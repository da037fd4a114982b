"""pydantic's errors in our words: what is wrong, what would be right, and never the value itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from shunter_schemas.base import PATTERN_WORDS
from shunter_schemas.faults import Fault, pointer
from shunter_schemas.locating import Place, locate
from shunter_schemas.nearest import did_you_mean

_TYPES: Mapping[str, str] = {
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "string_type": "must be a text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "finite_number": "must be a finite number",
}
_SHAPES: Mapping[str, str] = {
    "text": "a text",
    "number": "a number",
    "object": "an object",
    "list": "a list",
    "boolean": "true or false",
    "null": "null",
}
_ACCUMULATION = "it follows from `global_size`, `micro_size` and the number of ranks; leave it out"
_DERIVED: Mapping[str, str] = dict.fromkeys(
    ("gradient_accumulation_steps", "accumulation_steps", "accumulation", "grad_accum"), _ACCUMULATION
)
"""What others ask for in `batch`, and is never given here."""
_UNINTERESTING = frozenset({"default_factory_not_called"})
"""Follows from another error that is reported."""


def faults_of(error: ValidationError, model: type[BaseModel], document: Any) -> Iterator[Fault]:
    """The faults that pydantic found in `document`, which `error` was raised for."""
    for item in error.errors(include_input=False, include_url=False):
        kind = item["type"]
        if kind in _UNINTERESTING:
            continue
        place = locate(model, item["loc"], document)
        word = _WORDS.get(kind)
        if word is not None:
            yield word(place, item.get("ctx", {}))
        elif place.tags and kind in _TYPES:
            yield _not_an_object(place)
        else:
            yield Fault(pointer(place.path), _TYPES.get(kind) or _plain(item["msg"]))


def _plain(message: str) -> str:
    """pydantic's own message as the second half of a sentence."""
    for opening in ("Input should ", "String should ", "Value should ", "Tuple should ", "Dictionary should "):
        if message.startswith(opening):
            return "must " + message.removeprefix(opening).replace(" after validation", "")
    return message[:1].lower() + message[1:]


def _missing(place: Place, _: Mapping[str, Any]) -> Fault:
    missing = place.missing if isinstance(place.missing, str) else f"[{place.missing}]"
    return Fault(pointer(place.path), f"`{missing}` is missing")


def _unknown_field(place: Place, _: Mapping[str, Any]) -> Fault:
    name = str(place.path[-1])
    if name in _DERIVED and "micro_size" in place.known_fields:
        return Fault(pointer(place.path), _DERIVED[name])
    kinds = [kind for kind, fields in place.siblings.items() if name in fields]
    hint = f"; it goes with kind {' or '.join(kinds)}" if kinds else did_you_mean(name, place.known_fields)
    return Fault(pointer(place.path), f"unknown field{hint or '; known here: ' + ', '.join(place.known_fields)}")


def _not_in_list(place: Place, context: Mapping[str, Any]) -> Fault:
    expected = str(context.get("expected", ""))
    names = [name.strip("'") for name in expected.replace(" or ", ", ").split(", ")]
    guess = did_you_mean(place.value, names) if isinstance(place.value, str) else ""
    also = ", or a list" if "list" in place.siblings else ""
    return Fault(pointer(place.path), f"must be {expected}{also}{guess}")


def _wrong_tag(place: Place, _: Mapping[str, Any]) -> Fault:
    if not place.by_kind:
        wanted = " or ".join(_SHAPES.get(tag, tag) for tag in place.tags)
        return Fault(pointer(place.path), f"must be {wanted}")
    kind = place.value.get("kind") if isinstance(place.value, dict) else None
    guess = did_you_mean(kind, place.tags) if isinstance(kind, str) else ""
    return Fault(pointer((*place.path, "kind")), f"unknown kind; kinds: {', '.join(place.tags)}{guess}")


def _no_tag(place: Place, _: Mapping[str, Any]) -> Fault:
    return Fault(pointer(place.path), f"`kind` is missing; kinds: {', '.join(place.tags)}")


def _not_an_object(place: Place) -> Fault:
    example = place.value if isinstance(place.value, str) and place.value in place.tags else place.tags[0]
    detail = f'must be an object such as {{"kind": "{example}"}}; kinds: {", ".join(place.tags)}'
    return Fault(pointer(place.path), detail)


def _wrong_pattern(place: Place, context: Mapping[str, Any]) -> Fault:
    pattern = str(context.get("pattern", ""))
    words = PATTERN_WORDS.get(pattern, f"must match {pattern}")
    return Fault(pointer(place.path), f"the key {words}" if place.missing == "[key]" else words)


_WORDS: Mapping[str, Callable[[Place, Mapping[str, Any]], Fault]] = {
    "missing": _missing,
    "extra_forbidden": _unknown_field,
    "literal_error": _not_in_list,
    "enum": _not_in_list,
    "union_tag_invalid": _wrong_tag,
    "union_tag_not_found": _no_tag,
    "string_pattern_mismatch": _wrong_pattern,
}
