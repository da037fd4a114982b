"""YAML 1.2 as JSON values, by its core schema.

PyYAML alone reads YAML 1.1, in which `3e-4` is text, `no` is false, `010` is eight and `1:30` is ninety: not what
somebody who describes a training means. A key that stands twice is refused instead of the first being lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import yaml
from shunter_schemas.faults import DocumentError, Fault, pointer
from shunter_schemas.reading import MAX_DEPTH

_MOST_VALUES: Final = 1_000_000
"""Anchors can make a small file as large as one likes."""

_SCALARS: Final[tuple[tuple[str, str, str, Callable[[str], Any]], ...]] = (
    # tag, pattern, first characters, value
    ("null", r"null|Null|NULL|~|", "nN~", lambda _: None),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF", lambda text: text.lower() == "true"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789", lambda text: _integer(text)),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?",
        "-+.0123456789",
        float,
    ),
)


def read_yaml(body: bytes) -> Any:
    """The value of the one document in a YAML file.

    Raises:
        DocumentError: it is not YAML, holds more than one document, or something that JSON has no word for.
    """
    try:
        value = yaml.load(body, Loader=_Loader)  # noqa: S506  # a subclass of the safe loader
        _count(value)
    except yaml.YAMLError as error:
        raise _refused(_words(error)) from None
    except RecursionError:
        raise _refused("nested too deeply") from None
    return value


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """The safe loader with the scalars of YAML 1.2, and with keys that are text and stand once."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML fills it by class

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, "a key must be text; quote it", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key} stands here more than once", key_node.start_mark
                )
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _integer(text: str) -> int:
    if text.startswith("0o"):
        return int(text[2:], 8)
    return int(text, 16) if text.startswith("0x") else int(text)


def _constructor(read: Callable[[str], Any]) -> Callable[[_Loader, Any], Any]:
    return lambda loader, node: read(loader.construct_scalar(node))


for _tag, _pattern, _first, _read in _SCALARS:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), [*_first, *([""] if _tag == "null" else [])]
    )
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _constructor(_read))
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile("^<<$"), ["<"])


def _count(value: Any) -> None:
    left = _MOST_VALUES
    values: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    while values:
        one, path = values.pop()
        left -= 1
        if left < 0:
            raise _refused("its anchors make it larger than a job document can be")
        if len(path) > MAX_DEPTH:  # an anchor may also stand inside of itself
            raise _refused(f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(one, dict):
            values += [(item, (*path, key)) for key, item in one.items()]
        elif isinstance(one, list):
            values += [(item, (*path, index)) for index, item in enumerate(one)]
        elif not isinstance(one, str | int | float | None):
            raise DocumentError(
                [Fault(pointer(path), f"JSON has no word for a {type(one).__name__}; quote it as text")]
            )


def _words(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    said = ", ".join(part for part in (error.context, error.problem) if part)
    return f"{said} at line {mark.line + 1}, column {mark.column + 1}"


def _refused(detail: str) -> DocumentError:
    return DocumentError([Fault("", f"not YAML: {detail}")], parseable=False)
