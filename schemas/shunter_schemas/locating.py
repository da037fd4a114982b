"""From where pydantic says an error is to where it is in the user's document.

pydantic puts the tag of a union into `loc` (`workload.training.batch`), where the document has no such step. Whether a
step is a tag cannot be told from the document alone, so the core schema is walked along with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

Step = str | int


class Place(NamedTuple):
    """Where an error is: the steps that exist in the document, and what the schema says there."""

    path: tuple[Step, ...]
    value: Any
    missing: Step | None
    """The last step, when the document has no such member."""
    known_fields: tuple[str, ...]
    """Members that the innermost model takes."""
    tags: tuple[str, ...]
    """Tags of the union at this place, if there is one."""
    by_kind: bool
    """Whether the tag is the member `kind` (else: the JSON type)."""
    siblings: Mapping[str, tuple[str, ...]]
    """Where the place is right inside of a union: its tags, each with the members that are taken under it."""


def locate(model: type[BaseModel], loc: Sequence[Step], document: Any) -> Place:
    """The place of an error of `model` with pydantic's `loc` in `document`."""
    schema, definitions = _root(model)
    node = _bare(schema, definitions)
    path: list[Step] = []
    value, missing = document, None
    known = _fields(node)
    siblings: dict[str, tuple[str, ...]] = {}
    around: dict[str, tuple[str, ...]] = {}
    for step in loc:
        if node.get("type") == "tagged-union":
            around = {tag: _fields(_bare(choice, definitions)) for tag, choice in node["choices"].items()}
            node = _bare(node["choices"].get(step, {}), definitions)
            known = _fields(node) or known
            continue
        siblings, around = around, {}
        known = _fields(node) or known
        node = _bare(_child(node, step), definitions)
        if not _has(value, step):
            missing = step
            break
        path.append(step)
        value = value[step]
    tags = tuple(node["choices"]) if node.get("type") == "tagged-union" else ()
    return Place(tuple(path), value, missing, known, tags, node.get("discriminator") == "kind", around or siblings)


def _root(model: type[BaseModel]) -> tuple[Any, dict[str, Any]]:
    schema: Any = model.__pydantic_core_schema__
    if schema["type"] != "definitions":
        return schema, {}
    return schema["schema"], {definition["ref"]: definition for definition in schema["definitions"]}


def _bare(node: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema without the wrappers that add nothing to `loc`."""
    while True:
        if node.get("type") == "definition-ref":
            node = definitions[node["schema_ref"]]
        elif node.get("type") in {"model", "default", "nullable", "model-field"}:
            node = node["schema"]
        else:
            return node


def _child(node: Any, step: Step) -> Any:
    match node.get("type"):
        case "model-fields":
            fields = node["fields"].values()
            named = dict(zip(_fields(node), fields, strict=True))
            return named.get(str(step), {})
        case "dict":
            return node["values_schema"]
        case "tuple":
            items = node["items_schema"]
            return items[0] if node.get("variadic_item_index") == 0 else items[int(step)]
        case _:
            return {}


def _fields(node: Any) -> tuple[str, ...]:
    if node.get("type") != "model-fields":
        return ()
    return tuple(field.get("validation_alias", name) for name, field in node["fields"].items())


def _has(value: Any, step: Step) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)
