"""A document with comments: what each field is, and fields that it does not use yet."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from shunter_schemas.faults import DocumentError
from shunter_schemas.parse import parse_job

from shunter.reading import read_yaml
from shunter.writing.descriptions import fields_at, schema_at

_WIDTH: Final = 110
_FITS_IN_A_LINE: Final = 80
_NOT_EXPLAINED: Final = frozenset({"version", "kind"})
_PLAIN: Final = re.compile(r"[A-Za-z_]([\w ./-]*[\w/])?", re.ASCII)
_NOT_IN_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_EDITOR_LINE: Final = "# yaml-language-server: $schema="


class Style(StrEnum):
    """How it is written."""

    YAML = "yaml"
    JSON = "json"
    """JSON with `//` comments."""


def commented(
    document: Mapping[str, Any], style: Style, *, schema_url: str | None = None, head: Sequence[str] = ()
) -> str:
    """The document as text.

    Args:
        schema_url: where an editor finds the schema.
        head: lines of a comment above it all.
    """
    mark = "#" if style is Style.YAML else "//"
    lines = [f"{mark} {line}".rstrip() for line in head]
    if style is Style.YAML:
        address = [f"{_EDITOR_LINE}{schema_url}"] if schema_url else []
        body = [*_yaml(document, (), document), "", *_unused(document, mark, "")]
        return "\n".join([*address, *lines, *([""] if lines else []), *body]).rstrip() + "\n"
    address = [f'  "$schema": {json.dumps(schema_url)},'] if schema_url else []
    members = list(_json(document, (), document))
    return "\n".join([*lines, "{", *address, *members, *_unused(document, mark, "  "), "}"]) + "\n"


def _yaml(value: Mapping[str, Any], path: tuple[str, ...], document: Any) -> Iterator[str]:
    indent = "  " * len(path)
    for name, item in value.items():
        here = (*path, name)
        if not path and name != "version":
            yield ""
        yield from _comment(here, document, f"{indent}#")
        if isinstance(item, dict) and item and not _fits(item):
            yield f"{indent}{_scalar(name)}:"
            yield from _yaml(item, here, document)
        elif isinstance(item, str) and "\n" in item:
            yield f"{indent}{_scalar(name)}: {_quoted(item)}"
        elif isinstance(item, list) and not _fits(item):
            yield f"{indent}{_scalar(name)}:"
            yield from (f"{indent}  - {_scalar(one)}" for one in item)
        else:
            yield f"{indent}{_scalar(name)}: {_scalar(item)}"


def _json(value: Mapping[str, Any], path: tuple[str, ...], document: Any) -> Iterator[str]:
    indent = "  " * (len(path) + 1)
    for name, item in value.items():
        here = (*path, name)
        yield from _comment(here, document, f"{indent}//")
        if isinstance(item, dict) and item and not _fits(item):
            yield f"{indent}{json.dumps(name)}: {{"
            yield from _json(item, here, document)
            yield f"{indent}}},"
        elif isinstance(item, list) and not _fits(item):
            yield f"{indent}{json.dumps(name)}: ["
            yield from (f"{indent}  {json.dumps(one, ensure_ascii=False)}," for one in item)
            yield f"{indent}],"
        else:
            yield f"{indent}{json.dumps(name)}: {json.dumps(item, ensure_ascii=False)},"


def _comment(path: Sequence[str], document: Any, mark: str) -> Iterator[str]:
    if path[-1] in _NOT_EXPLAINED:
        return
    words = str(schema_at(path, document).get("description", ""))
    for line in textwrap.wrap(words, _WIDTH - len(mark)):
        yield f"{mark} {line}"


def _unused(document: Mapping[str, Any], mark: str, indent: str) -> Iterator[str]:
    """Fields of the top that the document has not and that this release takes, with an example, as comments."""
    for name, schema in fields_at((), document).items():
        if name in document or name == "$schema" or not schema.get("examples"):
            continue
        example = schema["examples"][0]
        if not example or not _is_taken({**document, name: example}):
            continue
        yield from _comment((name,), document, f"{indent}{mark}")
        text = json.dumps(example, ensure_ascii=False)
        yield f"{indent}{mark} {name}: {text}" if mark == "#" else f"{indent}{mark} {json.dumps(name)}: {text},"


def _is_taken(document: Mapping[str, Any]) -> bool:
    """Whether the document would be accepted, but for faults that it has without the example too."""
    try:
        parse_job(json.dumps(document).encode())
    except DocumentError:
        return False
    return True


def _fits(value: Any) -> bool:
    """Whether it is short and flat enough for one line."""
    items = list(value.values()) if isinstance(value, dict) else value
    flat = not any(isinstance(item, dict | list) or (isinstance(item, str) and "\n" in item) for item in items)
    return flat and len(json.dumps(value, ensure_ascii=False)) <= _FITS_IN_A_LINE


def _scalar(value: Any) -> str:
    """JSON is YAML; only plain words need no quotes."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and _reads_back(value):
        return value
    return _quoted(value)


def _quoted(value: Any) -> str:
    """JSON, with escapes for characters that YAML takes for breaks or does not take at all."""
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def _reads_back(text: str) -> bool:
    return bool(read_yaml(text.encode()) == text)
