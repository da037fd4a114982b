"""Request bodies: their content type and size are checked before anything is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from litestar import Request
from litestar.exceptions import InternalServerException

from shunter_service.problems import ProblemError

AnyRequest = Request[Any, Any, Any]

ARCHIVES = ("application/gzip", "application/x-gzip", "application/x-tar+gzip", "application/octet-stream")


async def job_document(request: AnyRequest, limit_bytes: int) -> bytes:
    """The body of a request that sends JSON.

    Raises:
        ProblemError: 415 for another content type, 413 beyond the limit.
    """
    require_type(request, ("application/json",))
    return await limited(request, limit_bytes)


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
