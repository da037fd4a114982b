"""Answers: pydantic models to JSON in one step, entity tags, byte ranges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar, cast

from litestar import Response
from litestar.status_codes import HTTP_200_OK, HTTP_304_NOT_MODIFIED
from pydantic import BaseModel

from shunter_service.web.problems import ProblemError

M = TypeVar("M", bound=BaseModel)

_JOB_TAG = re.compile(r'"(\d{1,15})(?:-[0-9a-f]{0,64})?"')
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def encode(model: BaseModel) -> bytes:
    """The JSON of an answer. What is not known is left out: a field that appears says something."""
    return model.model_dump_json(exclude_none=True).encode()


def shaped(model: M, *, status: int = HTTP_200_OK, headers: Mapping[str, str] | None = None) -> Response[M]:
    """An answer. It is encoded here; the type argument is for the API's description."""
    return raw(encode(model), type(model), status=status, headers=headers)


def raw(body: bytes, _: type[M], *, status: int = HTTP_200_OK, headers: Mapping[str, str] | None = None) -> Response[M]:
    """An answer from encoded JSON."""
    response = Response(content=body, status_code=status, media_type="application/json", headers=headers)
    return cast("Response[M]", response)


def unchanged(tag: str, _: type[M]) -> Response[M]:
    """304: the client holds it already."""
    empty = Response(
        content=b"", status_code=HTTP_304_NOT_MODIFIED, headers={"ETag": tag}, media_type="application/json"
    )
    return cast("Response[M]", empty)


def is_known(tag: str, if_none_match: str | None) -> bool:
    """Whether the client says that it holds what the tag names."""
    known = [part.strip().removeprefix("W/") for part in (if_none_match or "").split(",")]
    return tag in known or "*" in known


def asked_revisions(if_match: str) -> set[int] | None:
    """The revisions that an `If-Match` of jobs names: the part of their tags that changes of a job move.

    None: any (`*`). What is no tag of a job names nothing.
    """
    tags = [part.strip().removeprefix("W/") for part in if_match.split(",")]
    if "*" in tags:
        return None
    return {int(match[1]) for tag in tags if (match := _JOB_TAG.fullmatch(tag))}


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """`Range` as (start, end past the last byte); None: the whole file (no range, or one to ignore).

    Raises:
        ProblemError: 416 when it begins behind the end.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first == "":
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    if first and last and int(last) < int(first):
        return None
    if start >= size or start >= end:
        raise ProblemError(
            "range_not_satisfiable",
            f"the file has {size} bytes",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return start, end
