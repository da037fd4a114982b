"""What every request gets: an id, a line in the log, and a header that names the id."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, cast

import structlog
from litestar.types import HTTPScope, Message, Scope
from shunter_schemas.ids import new_id

METHOD_ASKED: Final = "method_asked"
"""The key of a scope's state under which the client's own method stands, where it is answered as another."""
_SYNC = "/v1/node/sync"

_log = structlog.get_logger("shunter.api")


def request_id(scope: Scope) -> str:
    """The id of this request; made when first asked for."""
    state = scope.setdefault("state", {})
    found: str = state.setdefault("request_id", "") or new_id("req")
    state["request_id"] = found
    return found


def note_start(scope: Scope) -> None:
    """Remember when the request was let in, for the log."""
    scope.setdefault("state", {})["began"] = time.perf_counter()


async def finish_head(message: Message, scope: Scope) -> None:
    """A `before_send` hook: add the id to the head of the answer, and log the request.

    Reading and agents' exchanges are logged at `debug`, so that they do not fill the disk; changes and refusals at
    `info`.
    """
    if message["type"] != "http.response.start":
        return
    scope = cast(HTTPScope, scope)
    headers = list(message["headers"])
    if scope["method"] == "OPTIONS":
        headers = [(name, value) for name, value in headers if name != b"allow"]
        headers.append((b"allow", _named(_methods_of(scope))))
    elif message["status"] == 405:
        headers = [(name, _named(value.decode().split(", ")) if name == b"allow" else value) for name, value in headers]
    headers.append((b"x-request-id", request_id(scope).encode()))
    message["headers"] = headers
    if _is_routine(scope) and message["status"] < 400:
        _log.debug("request", path=scope["path"])
    else:
        _log.info("request", **_facts(scope, message["status"]))


def _is_routine(scope: HTTPScope) -> bool:
    """Reading, and what agents send every few seconds."""
    return scope["method"] in ("GET", "HEAD") or scope["path"] == _SYNC


def _facts(scope: HTTPScope, status: int) -> dict[str, Any]:
    state = scope["state"]
    began = state.get("began")
    return {
        "method": state.get(METHOD_ASKED) or scope["method"],
        "path": cast("dict[str, Any]", scope).get("path_template") or scope["path"],
        "status": status,
        "request_id": request_id(scope),
        "key": state.get("key_name"),
        "ms": None if began is None else round((time.perf_counter() - began) * 1000, 2),
    }


def _methods_of(scope: HTTPScope) -> set[str]:
    """Litestar's own answer to OPTIONS knows one handler's methods only."""
    template = cast("dict[str, Any]", scope).get("path_template")
    return {
        method
        for route in scope["litestar_app"].routes
        if route.path_format == template
        for method in getattr(route, "methods", ())
    }


def _named(methods: Iterable[str]) -> bytes:
    """The value of `Allow`. What has a GET answers HEAD too (`head_requests`)."""
    allowed = set(methods)
    return ", ".join(sorted(allowed | {"HEAD"} if "GET" in allowed else allowed)).encode()
