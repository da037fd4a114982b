"""What the SDK raises, as one tree. Catch `ShunterError` for all of it.

ShunterError
├── NotConfigured         no service address or no key was found
├── Unreachable           the service did not answer, after every retry
├── WaitTimeout           the job did not end in the time that the caller gave
├── BundleRefused         a folder cannot be sent as it stands
├── DownloadCorrupt       the bytes that arrived are not the bytes that were stored
├── InvalidDocument       the job document is wrong; `faults` says where
└── ApiError              the service answered with a problem document
    ├── BadRequest        400: not parseable
    ├── Unauthorized      401: no key, or one that the service does not know
    ├── Forbidden         403: the key lacks a scope
    ├── NotFound          404: no such thing, or another project's
    ├── Conflict          409: the state does not allow it
    ├── RevisionMismatch  412, 428: somebody changed it in between
    ├── TooLarge          413: over a size limit
    ├── DocumentRefused   422: also an `InvalidDocument`
    ├── RateLimited       429: `retry_after_s` says when to come again
    └── ServerError       5xx
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shunter_schemas.faults import Fault


class ShunterError(Exception):
    """Anything that the SDK raises on purpose. `str()` is one sentence for a person; `hint` is the way out.

    A traceback shows the hint too.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(f"way out: {hint}")


class NotConfigured(ShunterError):
    """No service address or no key was found."""


class Unreachable(ShunterError):
    """The service did not answer, after every retry. Nothing is known about whether it did what was asked."""


class WaitTimeout(ShunterError):
    """The job did not end in the time that the caller gave; it goes on."""


class BundleRefused(ShunterError):
    """A folder cannot be sent as it stands."""


class DownloadCorrupt(ShunterError):
    """The bytes that arrived are not the bytes that were stored; nothing was written in their place."""


class InvalidDocument(ShunterError):
    """The job document is wrong. `faults` holds every fault that was found, the first one also in the message."""

    def __init__(self, message: str, faults: Sequence[Fault] = (), *, hint: str = "") -> None:
        ShunterError.__init__(self, message, hint=hint)
        self.faults = tuple(faults)
        _note_all(self, self.faults)


class ApiError(ShunterError):
    """The service answered with a problem document (RFC 9457), kept whole in `problem`."""

    way_out = ""
    """The `hint` of every error of the class."""

    def __init__(
        self, status: int, slug: str, problem: Mapping[str, Any], *, retry_after_s: float | None = None
    ) -> None:
        self.faults = _faults(problem)
        ShunterError.__init__(self, _sentence(status, problem, self.faults), hint=self.way_out)
        _note_all(self, self.faults)
        self.status = status
        self.slug = slug
        self.problem = dict(problem)
        self.retry_after_s = retry_after_s

    @property
    def request_id(self) -> str | None:
        """What to quote to the operator."""
        value = self.problem.get("request_id")
        return value if isinstance(value, str) else None


class BadRequest(ApiError):
    """400: the request is not parseable."""


class Unauthorized(ApiError):
    """401: no key, or one that the service does not know."""

    way_out = "is it the right key? --api-key, SHUNTER_API_KEY, or the data directory's `api-key`"


class Forbidden(ApiError):
    """403: the key lacks a scope."""


class NotFound(ApiError):
    """404: no such thing, or one of another project."""


class Conflict(ApiError):
    """409: the state of the thing does not allow it."""


class RevisionMismatch(ApiError):
    """412 or 428: somebody changed it in between, or the request did not say which revision it means."""


class TooLarge(ApiError):
    """413: over a size limit."""


class Unprocessable(ApiError):
    """422: the request is understood, and something in it is wrong; `faults` says where."""


class DocumentRefused(Unprocessable, InvalidDocument):
    """The service refuses the job document (slug `invalid_document`)."""

    def with_only(self, faults: Sequence[Fault]) -> DocumentRefused:
        """The same refusal for these of its faults."""
        errors = [{"pointer": fault.pointer, "detail": fault.detail} for fault in faults]
        detail = in_words(faults[0]) if len(faults) == 1 else f"{len(faults)} faults were found"
        return DocumentRefused(self.status, self.slug, {**self.problem, "detail": detail, "errors": errors})


class RateLimited(ApiError):
    """429: `retry_after_s` says when to come again."""


class ServerError(ApiError):
    """5xx: the service failed; `request_id` finds it in the operator's log."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: RevisionMismatch,
    413: TooLarge,
    422: Unprocessable,
    428: RevisionMismatch,
    429: RateLimited,
}

_BY_SLUG: Mapping[str, type[ApiError]] = {"invalid_document": DocumentRefused}


def api_error(status: int, problem: Mapping[str, Any], *, retry_after_s: float | None = None) -> ApiError:
    """The exception for an answer of the service with this status and body."""
    slug = str(problem.get("type", "")).rstrip("/").rpartition("/")[2].rpartition(":")[2] or f"http_{status}"
    kind = _BY_SLUG.get(slug) or _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    return kind(status, slug, problem, retry_after_s=retry_after_s)


def in_words(fault: Fault) -> str:
    """A fault as one line: where, then what."""
    return f"{fault.pointer}: {fault.detail}" if fault.pointer else fault.detail


def _sentence(status: int, problem: Mapping[str, Any], faults: Sequence[Fault]) -> str:
    text = str(problem.get("detail") or problem.get("title") or f"the service answered {status}")
    first = in_words(faults[0]) if len(faults) > 1 else ""
    return text if first in text else f"{text}, the first: {first}"


def _note_all(error: BaseException, faults: Sequence[Fault]) -> None:
    """Where there are several, a traceback shows each of them."""
    for fault in faults if len(faults) > 1 else ():
        error.add_note(f"- {in_words(fault)}")


def _faults(problem: Mapping[str, Any]) -> tuple[Fault, ...]:
    entries = problem.get("errors")
    if not isinstance(entries, list):
        return ()
    found = [entry for entry in entries if isinstance(entry, dict)]
    return tuple(Fault(str(entry.get("pointer", "")), str(entry.get("detail", ""))) for entry in found)
