"""Request bodies: their content type and size are checked before anything is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, TypeVar

from litestar import Request
from litestar.exceptions import InternalServerException
from pydantic import BaseModel
from shunter_schemas.changes import parse_request
from shunter_schemas.faults import DocumentError

from shunter_service.web.problems import ProblemError

AnyRequest = Request[Any, Any, Any]
M = TypeVar("M", bound=BaseModel)

ARCHIVES = ("application/gzip", "application/x-gzip", "application/x-tar+gzip", "application/octet-stream")


JSON = ("application/json",)
PATCHES = ("application/json", "application/merge-patch+json")


async def json_body(request: AnyRequest, limit_bytes: int, accepted: tuple[str, ...] = JSON) -> bytes:
    """The body of a request that sends JSON.

    Raises:
        ProblemError: 415 for another content type, 413 beyond the limit.
    """
    require_type(request, accepted)
    return await limited(request, limit_bytes)


async def optional_json(request: AnyRequest, limit_bytes: int) -> bytes:
    """The same; empty where nothing was sent.

    Raises:
        ProblemError: as `json_body`.
    """
    body = await limited(request, limit_bytes)
    if body:
        require_type(request, JSON)
    return body


def parsed(body: bytes, model: type[M]) -> M:
    """What a request's body says.

    Raises:
        ProblemError: 400 when it is not JSON, 422 with every fault.
    """
    try:
        return parse_request(body, model)
    except DocumentError as error:
        slug = "invalid_request" if error.parseable else "not_parseable"
        detail = "; ".join(f"{at}: {detail}" if at else detail for at, detail in error.faults)
        raise ProblemError(slug, detail, faults=error.faults) from None


async def limited(request: AnyRequest, limit_bytes: int) -> bytes:
    """The body, unless it is too long.

    Raises:
        ProblemError: 413.
    """
    check_length(request, limit_bytes)
    pieces: list[bytes] = []
    size = 0
    async for piece in arriving(request):
        size += len(piece)
        if size > limit_bytes:
            raise too_large(limit_bytes)
        pieces.append(piece)
    return b"".join(pieces)


async def arriving(request: AnyRequest) -> AsyncGenerator[bytes, None]:
    """The body as it comes.

    Raises:
        ProblemError: 400: the client went away in the middle. Nobody reads it; it ends what was begun.
    """
    try:
        async for piece in request.stream():
            if piece:
                yield piece
    except InternalServerException:
        raise ProblemError("bad_request", "the connection was closed before the body had arrived") from None


def require_type(request: AnyRequest, accepted: tuple[str, ...]) -> None:
    """Refuse a body of another content type: it is a mistake that should be seen.

    Raises:
        ProblemError: 415.
    """
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent not in accepted:
        raise ProblemError(
            "unsupported_media_type",
            f"send `Content-Type: {accepted[0]}`, not `{sent[:100]}`"
            if sent
            else f"send `Content-Type: {accepted[0]}`",
            headers={"Accept-Post": ", ".join(accepted)},
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ProblemError("unsupported_media_type", "a body with a content encoding is not understood; send it plain")


def check_length(request: AnyRequest, limit_bytes: int) -> None:
    """Refuse a body by its announced length.

    Raises:
        ProblemError: 413, or 400 when the length is no number.
    """
    announced = request.headers.get("content-length")
    if announced is None:
        return
    if not (announced.isascii() and announced.isdigit()):
        raise ProblemError("bad_request", "Content-Length is not a number")
    if int(announced) > limit_bytes:
        raise too_large(limit_bytes)


def too_large(limit_bytes: int) -> ProblemError:
    return ProblemError("too_large", f"the body is longer than {limit_bytes} bytes", headers={"Connection": "close"})
