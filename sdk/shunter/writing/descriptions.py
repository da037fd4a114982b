"""What the JSON Schema says about each place of a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from shunter_schemas.job import JobSpec


@cache
def job_schema() -> dict[str, Any]:
    """The JSON Schema of the job document."""
    return JobSpec.model_json_schema()


def schema_at(path: Sequence[str], document: Any) -> dict[str, Any]:
    """The schema of a member of this document, with unions told apart by what stands there; empty if there is none."""
    schema, value = job_schema(), document
    for name in path:
        schema = _bare(schema, value).get("properties", {}).get(name, {})
        value = value.get(name) if isinstance(value, Mapping) else None
    return schema


def fields_at(path: Sequence[str], document: Any) -> dict[str, Any]:
    """The members that an object of this document can have, by name."""
    schema, value = job_schema(), document
    for name in path:
        schema = _bare(schema, value).get("properties", {}).get(name, {})
        value = value.get(name) if isinstance(value, Mapping) else None
    found: dict[str, Any] = _bare(schema, value).get("properties", {})
    return found


def _bare(schema: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    """The schema that holds for the value, without references and unions."""
    while True:
        if "$ref" in schema:
            schema = job_schema()["$defs"][schema["$ref"].rpartition("/")[2]]
        elif choices := schema.get("oneOf") or schema.get("anyOf"):
            mapping = schema.get("discriminator", {}).get("mapping", {})
            kind = value.get("kind") if isinstance(value, Mapping) else None
            if kind in mapping:
                schema = {"$ref": mapping[kind]}
            else:
                schema = next((choice for choice in choices if "$ref" in choice or "oneOf" in choice), {})
        else:
            return schema
