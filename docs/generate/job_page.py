"""The reference of the job document, from its JSON Schema and the table of what this release refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from shunter_schemas.availability import ROWS
from shunter_schemas.job import JobSpec
from tables import table

Schema = dict[str, Any]

_HEADINGS = ("field", "type", "default", "what")
_BOUNDS = (
    ("minimum", "at least"),
    ("exclusiveMinimum", "above"),
    ("maximum", "at most"),
    ("exclusiveMaximum", "below"),
)
_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "`true` or `false`", "null": "null"}

_HEAD = """# The job document, version 1

One JSON object says what to train, how to spread it over GPUs, and within which limits. `POST /v1/jobs` takes it as it
stands; `shunter validate FILE` checks it without a service. Fields that are not listed here are refused. Units stand in
the names: `_s` seconds, `_gib` gibibytes, `_usd` US dollars. The schema for editors and other programs is
printed by `shunter schema`, and served at `/v1/schemas/job.json`.
"""

_NOT_YET = """## Not in this release yet

Version 1 of the document is whole, so that documents written today stay as they are. What this release cannot carry out
is refused when it is submitted (422), never ignored:
"""


def text() -> str:
    """The page."""
    schema = JobSpec.model_json_schema()
    parts = [_HEAD, "## Fields\n", *table(_HEADINGS, _fields(schema, schema["$defs"])), ""]
    for name in _in_order(schema):
        part = schema["$defs"][name]
        if part.get("properties"):
            parts += [
                f"## {name}\n",
                f"{_prose(part.get('description', ''))}\n",
                *table(_HEADINGS, _fields(part, schema["$defs"])),
                "",
            ]
    refused = ((f"`{row.path}`", row.workload or "any", f"not yet: {row.instead}") for row in ROWS)
    parts += [_NOT_YET, *table(("field", "workload", "instead"), refused)]
    return "\n".join(parts) + "\n"


def _fields(part: Schema, parts: Schema) -> Iterator[tuple[str, str, str, str]]:
    required = part.get("required", ())
    for name, field in part["properties"].items():
        what = field.get("description") or parts.get(field.get("$ref", "").rpartition("/")[2], {}).get(
            "description", ""
        )
        default = "**required**" if name in required else _default(field)
        yield f"`{name}`", _type(field), default, _prose(what) + _example(field)


def _type(field: Schema) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name != "JsonValue" else "any JSON"
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return " or ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    for key in ("oneOf", "anyOf"):
        if key in field:
            return " or ".join(dict.fromkeys(_type(choice) for choice in field[key]))
    kind = field.get("type", "")
    if kind == "array":
        return _list(field)
    if kind == "object":
        return _object(field)
    bounds = ", ".join(f"{word} {field[key]}" for key, word in _BOUNDS if key in field)
    return _TYPES.get(kind, "any JSON") + (f", {bounds}" if bounds else "")


def _list(field: Schema) -> str:
    if "prefixItems" in field:
        return f"list of {len(field['prefixItems'])}: {', '.join(_type(item) for item in field['prefixItems'])}"
    return f"list of {_type(field.get('items', {}))}"


def _object(field: Schema) -> str:
    values = [*field.get("patternProperties", {}).values(), field.get("additionalProperties")]
    of = next((_type(value) for value in values if isinstance(value, dict)), "any JSON")
    return f"object: name to {of}"


def _default(field: Schema) -> str:
    default = field.get("default", ...)
    if default is ... or (isinstance(default, dict) and "$ref" in field):
        return ""
    return f"`{json.dumps(default)}`"


def _example(field: Schema) -> str:
    examples = field.get("examples", ())
    shown = next((json.dumps(value) for value in examples if value != field.get("const")), None)
    return f" E.g. `{shown}`." if shown and len(shown) <= 80 and "enum" not in field else ""


def _prose(description: str) -> str:
    """A docstring for readers of the page: no names of Python modules."""
    first = re.split(r"\n\n", description.strip())[0]
    return " ".join(first.split())


def _in_order(schema: Schema) -> list[str]:
    """Parts in the order in which a reader of the page meets them."""
    met: dict[str, None] = {}
    waiting = [schema]
    while waiting:
        part = waiting.pop(0)
        for name in re.findall(r'"#/\$defs/(\w+)"', json.dumps(part.get("properties", {}))):
            if name not in met:
                met[name] = None
                waiting.append(schema["$defs"][name])
    return list(met)
