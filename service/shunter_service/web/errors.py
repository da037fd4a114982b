"""Every exception to `application/problem+json`. Nothing else leaves the service as an error, and never a traceback."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.handlers.base import BaseRouteHandler
from litestar.types import ExceptionHandlersMap
from shunter_schemas.base import PATTERN_WORDS
from shunter_schemas.faults import DocumentError, Fault, pointer
from shunter_store.errors import (
    Conflict,
    IdempotencyMismatch,
    NotFound,
    ObjectExists,
    RevisionChanged,
    UnusableDatabase,
)
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from shunter_service.web.parameter_names import parameter_choices, parameter_names
from shunter_service.web.problems import PROBLEMS, TYPE_PREFIX, ProblemError
from shunter_service.web.requests import request_id

_log = structlog.get_logger("shunter.api")

AnyRequest = Request[Any, Any, Any]
PROBLEM_JSON = "application/problem+json"
_PATTERN_WORDS: Mapping[str, str] = {r"^[\x21-\x7e]+$": "must be printable ASCII characters without spaces"}
"""What patterns of parameters ask for; those that documents have too are in `PATTERN_WORDS`."""

_SLUGS_BY_STATUS: Mapping[int, str] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
}


def answer(request: AnyRequest, problem: ProblemError) -> Response[bytes]:
    """A problem document."""
    body: dict[str, Any] = {
        "type": TYPE_PREFIX + problem.slug,
        "title": problem.kind.title,
        "status": problem.kind.status,
        "detail": problem.detail,
    }
    if problem.faults:
        body["errors"] = [{"pointer": fault.pointer, "detail": fault.detail} for fault in problem.faults]
    body["request_id"] = request_id(request.scope)
    return Response(
        content=json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"),
        status_code=problem.kind.status,
        media_type=PROBLEM_JSON,
        headers=problem.headers,
    )


def _problem(request: AnyRequest, error: ProblemError) -> Response[bytes]:
    return answer(request, error)


def _document(request: AnyRequest, error: DocumentError) -> Response[bytes]:
    slug = "invalid_document" if error.parseable else "not_parseable"
    return answer(request, ProblemError(slug, _count(error.faults), faults=error.faults))


def _count(faults: list[Fault]) -> str:
    if len(faults) == 1:
        fault = faults[0]
        return f"{fault.pointer}: {fault.detail}" if fault.pointer else fault.detail
    return f"{len(faults)} faults were found"


def _not_found(request: AnyRequest, error: NotFound) -> Response[bytes]:
    return answer(request, ProblemError("not_found", str(error)))


def _conflict(request: AnyRequest, error: Conflict) -> Response[bytes]:
    slug = error.slug if error.slug in PROBLEMS else "conflict"
    return answer(request, ProblemError(slug, error.detail))


def _object_exists(request: AnyRequest, error: ObjectExists) -> Response[bytes]:
    return answer(request, ProblemError("object_exists", error.detail))


def _revision_changed(request: AnyRequest, error: RevisionChanged) -> Response[bytes]:
    return answer(request, ProblemError("revision_changed", str(error)))


def _key_reused(request: AnyRequest, error: IdempotencyMismatch) -> Response[bytes]:
    return answer(request, ProblemError("idempotency_key_reused", str(error)))


def _parameters(request: AnyRequest, error: ValidationException) -> Response[bytes]:
    extra = error.extra if isinstance(error.extra, list) else []
    faults = [_parameter_fault(item, request.route_handler) for item in extra if isinstance(item, Mapping)]
    return answer(request, ProblemError("invalid_parameters", _names(faults) or str(error.detail), faults=faults))


def _parameter_fault(item: Mapping[str, Any], handler: BaseRouteHandler) -> Fault:
    key = str(item.get("key", ""))
    name = parameter_names(handler).get(key, key)
    detail = str(item.get("message", "is not valid"))
    if "enum value" in detail:
        detail = f"must be one of {', '.join(parameter_choices(handler).get(key, ()))}"
    elif "matching regex" in detail:
        pattern = detail.partition("'")[2].rstrip("'").replace("\\\\", "\\")
        detail = _PATTERN_WORDS.get(pattern) or PATTERN_WORDS.get(pattern) or f"must match `{pattern}`"
    kind = {"header": "header", "path": "path parameter"}.get(
        getattr(item.get("source"), "value", ""), "query parameter"
    )
    return Fault(pointer([name]), f"{kind} `{name}`: {detail}")


def _names(faults: Iterable[Fault]) -> str:
    return "; ".join(fault.detail for fault in faults)


def _http(request: AnyRequest, error: HTTPException) -> Response[bytes]:
    slug = _SLUGS_BY_STATUS.get(error.status_code, "bad_request" if error.status_code < 500 else "internal_error")
    if slug == "internal_error":
        return _unexpected(request, error)
    known = {
        "not_found": f"there is nothing at {request.scope['path']}; /docs shows what there is",
        "method_not_allowed": f"{request.method} is not allowed here",
        "too_large": "the body is larger than this resource takes",
    }
    headers = {name.title(): value for name, value in (error.headers or {}).items()}
    return answer(request, ProblemError(slug, known.get(slug, str(error.detail)), headers=headers))


def _unavailable(request: AnyRequest, error: Exception) -> Response[bytes]:
    if _is_full(error):
        return _no_room(request, error)
    _log.error("database unavailable", request_id=request_id(request.scope), error=str(error).splitlines()[0][:300])
    detail = "the database does not answer; nothing is lost, try again"
    return answer(request, ProblemError("unavailable", detail, headers={"Retry-After": "1"}))


def _machine(request: AnyRequest, error: OSError) -> Response[bytes]:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return _unexpected(request, error)
    return _no_room(request, error)


def _is_full(error: Exception) -> bool:
    """Whether it is the database that has no room: SQLite says so in words, PostgreSQL by a code."""
    cause = getattr(error, "orig", None)
    return getattr(cause, "sqlstate", None) == "53100" or "database or disk is full" in str(cause)


def _no_room(request: AnyRequest, error: Exception) -> Response[bytes]:
    _log.error("no room on the disk", request_id=request_id(request.scope), error=str(error).partition("\n")[0][:300])
    detail = "the service has no room on its disk; nothing is lost, try again when its operator has made some"
    return answer(request, ProblemError("unavailable", detail, headers={"Retry-After": "30"}))


def _unexpected(request: AnyRequest, error: Exception) -> Response[bytes]:
    _log.error("unexpected error", request_id=request_id(request.scope), exc_info=error)
    detail = "an unexpected error was logged under this request id"
    return answer(request, ProblemError("internal_error", detail))


HANDLERS: ExceptionHandlersMap = {
    ProblemError: _problem,
    DocumentError: _document,
    NotFound: _not_found,
    ObjectExists: _object_exists,
    Conflict: _conflict,
    RevisionChanged: _revision_changed,
    IdempotencyMismatch: _key_reused,
    ValidationException: _parameters,
    HTTPException: _http,
    OperationalError: _unavailable,
    InterfaceError: _unavailable,
    PoolTimeout: _unavailable,
    UnusableDatabase: _unavailable,
    OSError: _machine,
    Exception: _unexpected,
}
