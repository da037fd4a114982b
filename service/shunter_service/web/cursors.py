"""Opaque keyset cursors: where a page ended, in a form that nobody is tempted to compute with."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import UTC, datetime

from shunter_service.web.problems import ProblemError, bad_parameter


def encode_cursor(*parts: str | float) -> str:
    """A cursor for the position after these key values."""
    text = json.dumps(parts, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def newest_first(cursor: str | None) -> tuple[datetime, str] | None:
    """A cursor over `(created_at, id)`.

    Raises:
        ProblemError: 422: it was not given out by this service.
    """
    parts = _decode(cursor, (float, str))
    if parts is None:
        return None
    try:
        return datetime.fromtimestamp(float(parts[0]), UTC), str(parts[1])
    except (OverflowError, ValueError, OSError):
        raise _refused() from None


def by_text(cursor: str | None) -> str | None:
    """A cursor over one text.

    Raises:
        ProblemError: 422: it was not given out by this service.
    """
    parts = _decode(cursor, (str,))
    return None if parts is None else str(parts[0])


def _decode(cursor: str | None, types: tuple[type, ...]) -> list[str | float] | None:
    if cursor is None:
        return None
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        raise _refused() from None
    if not isinstance(parts, list) or [type(part) for part in parts] != list(types):
        raise _refused()
    if any(isinstance(part, str) and ("\x00" in part or not _is_text(part)) for part in parts):
        raise _refused()
    return parts


def _is_text(part: str) -> bool:
    try:
        part.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused() -> ProblemError:
    return bad_parameter("cursor", "not a cursor that this service gave out")
