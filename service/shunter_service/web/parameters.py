"""Query parameters: the types that several routes share, and the refusal of those that a route does not know."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, get_args, get_origin

from litestar.handlers.base import BaseRouteHandler
from litestar.params import FromPath, HeaderParameter, QueryParameter
from shunter_schemas.faults import Fault, pointer
from shunter_schemas.ids import is_id

from shunter_service.auth import Connection
from shunter_service.web.parameter_names import query_names
from shunter_service.web.problems import ProblemError, not_found

LARGEST = 2**53 - 1

JobId = FromPath[str]
Limit = Annotated[int, QueryParameter(ge=1, le=500, description="How many items a page holds at most.")]
Cursor = Annotated[
    str | None,
    QueryParameter(max_length=500, description="`next_cursor` of the page before; only a cursor that was given out."),
]
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Makes a repetition harmless: the same key and body get the same answer for at least a day.",
    ),
]
After = Annotated[int, QueryParameter(ge=0, le=LARGEST, description="Only what has a higher number.")]
LastEventId = Annotated[
    str | None,
    HeaderParameter(
        name="Last-Event-ID", max_length=20, description="With a stream: go on after this one (browsers send it)."
    ),
]


def refuse_unknown(connection: Connection, handler: BaseRouteHandler) -> None:
    """A part of the guard of every route: a query parameter that it does not know is a mistake that should be seen.

    So is the word `null` for a number or a choice, which would be read as if the parameter had been left out.

    Raises:
        ProblemError: 422, naming the nearest known parameter.
    """
    known = query_names(handler)
    faults = [
        Fault(pointer([name]), f"unknown query parameter{_nearest(name, known)}")
        for name in connection.query_params
        if name not in known
    ]
    faults += [
        Fault(pointer([name]), "is not valid; leave the parameter out where there is no value")
        for name, value in connection.query_params.multi_items()
        if value.lower() == "null" and name in _names_that_take_null(handler)
    ]
    if faults and connection.scope.get("method") != "OPTIONS":
        raise ProblemError("invalid_parameters", "; ".join(_line(fault) for fault in faults), faults=faults)


def checked_id(kind: str, prefix: str, text: str) -> str:
    """An id from a path; a text that cannot be one is the same as one that does not exist.

    Raises:
        ProblemError: 404.
    """
    if not is_id(prefix, text):
        raise not_found(kind, text[:60])
    return text


def last_seen(header: str | None, query: int) -> int:
    """Where a stream goes on: `Last-Event-ID` when it is a number, else the query parameter."""
    return min(int(header), LARGEST) if header is not None and header.isascii() and header.isdigit() else query


@lru_cache(maxsize=256)
def _names_that_take_null(handler: BaseRouteHandler) -> frozenset[str]:
    """Query parameters for which Litestar reads the word `null` as nothing: they may be absent, and are no text."""
    fields = handler.signature_model._fields.items()
    return frozenset(
        field.kwarg_definition.name or name
        for name, field in fields
        if isinstance(field.kwarg_definition, QueryParameter)
        and field.is_optional
        and not any(inner is str or get_origin(inner) is list for inner in get_args(field.annotation))
    )


def _nearest(name: str, known: frozenset[str]) -> str:
    near = get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean `{near[0]}`?"
    return f"; known here: {', '.join(sorted(known))}" if known else "; there are none here"


def _line(fault: Fault) -> str:
    return f"`{fault.pointer[1:]}`: {fault.detail}"
