"""How the parameters of a route are called outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin

from litestar.handlers.base import BaseRouteHandler
from litestar.params import ParameterKwarg, QueryParameter


@lru_cache(maxsize=256)
def parameter_names(handler: BaseRouteHandler) -> Mapping[str, str]:
    """The name that a client uses, by the name in the handler's signature."""
    return {
        field: definition.name or field
        for field, definition in _definitions(handler).items()
        if isinstance(definition, ParameterKwarg)
    }


def parameter_definitions(handler: BaseRouteHandler) -> Mapping[str, ParameterKwarg]:
    """What a route checks about its parameters, by the name that a client uses."""
    return {
        definition.name or field: definition
        for field, definition in _definitions(handler).items()
        if isinstance(definition, ParameterKwarg)
    }


@lru_cache(maxsize=256)
def parameter_choices(handler: BaseRouteHandler) -> Mapping[str, tuple[str, ...]]:
    """The values that an enumerated parameter may have, by the name in the handler's signature."""
    fields = handler.signature_model._fields
    return {name: found for name, field in fields.items() if (found := tuple(_choices(field.raw)))}


@lru_cache(maxsize=256)
def query_names(handler: BaseRouteHandler) -> frozenset[str]:
    """The query parameters that a route knows."""
    return frozenset(
        definition.name or field
        for field, definition in _definitions(handler).items()
        if isinstance(definition, QueryParameter)
    )


def _definitions(handler: BaseRouteHandler) -> dict[str, Any]:
    return {name: field.kwarg_definition for name, field in handler.signature_model._fields.items()}


def _choices(annotation: Any) -> Iterator[str]:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (str(member.value) for member in annotation)
    if get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
        return
    for inner in get_args(annotation):
        yield from _choices(inner)
