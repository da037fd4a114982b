"""Google's own description of its Compute API, as it ships with google-api-python-client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from shunter_providers.testing import Request


def faults_of_request(call: Request) -> list[str]:
    """What the description does not know of a call, or misses in it."""
    method = next((one for one in _methods() if _fits(one, call)), None)
    if method is None:
        return [f"there is no {call.method} {call.path}"]
    known = {**method["parameters"], **_description()["parameters"]}
    found = [f"{method['id']}: there is no parameter {name}" for name in call.query if name not in known]
    if "request" in method:
        found += _faults(method["request"]["$ref"], call.json(), method["id"])
    elif call.body:
        found.append(f"{method['id']} takes no body")
    return found


def faults_of_answer(call: Request, body: Any) -> list[str]:
    """What the description does not know of an answer that is a success."""
    method = next(one for one in _methods() if _fits(one, call))
    return _faults(method["response"]["$ref"], body, method["id"])


@cache
def _description() -> Mapping[str, Any]:
    place = files("googleapiclient") / "discovery_cache" / "documents" / "compute.v1.json"
    described: Mapping[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return described


@cache
def _methods() -> list[Mapping[str, Any]]:
    resources = _description()["resources"].values()
    return [method for resource in resources for method in resource.get("methods", {}).values()]


def _fits(method: Mapping[str, Any], call: Request) -> bool:
    pattern = re.sub(r"\{\w+\}", "[^/]+", method["flatPath"])
    return method["httpMethod"] == call.method and re.fullmatch(f"/compute/v1/{pattern}", call.path) is not None


def _faults(ref: str, value: Any, where: str) -> list[str]:
    return list(_walk({"$ref": ref}, value, where))


def _walk(schema: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = _description()["schemas"][schema["$ref"]]
    kind = schema.get("type", "any")
    if kind == "object":
        yield from _members(schema, value, where)
    elif kind == "array":
        if not isinstance(value, list):
            yield f"{where}: {value!r} is no list"
            return
        for number, item in enumerate(value):
            yield from _walk(schema["items"], item, f"{where}[{number}]")
    elif not _is(kind, value):
        yield f"{where}: {value!r} is no {kind}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    elif schema.get("format") in ("int64", "uint64") and not re.fullmatch(r"-?\d+", value):
        yield f"{where}: {value!r} is no {schema['format']}"


def _members(schema: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {value!r} is no object"
        return
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, inner in value.items():
        if name in known:
            yield from _walk(known[name], inner, f"{where}.{name}")
        elif others is not None:
            yield from _walk(others, inner, f"{where}.{name}")
        else:
            yield f"{where}: there is no {name}"


def _is(kind: str, value: Any) -> bool:
    kinds: Mapping[str, tuple[type, ...]] = {
        "string": (str,),
        "boolean": (bool,),
        "integer": (int,),
        "number": (int, float),
        "any": (object,),
    }
    return isinstance(value, kinds[kind]) and (kind != "integer" or not isinstance(value, bool))
