"""Exit codes: what a script learns from a command without reading its text."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from shunter_schemas.states import State

from shunter import errors


class ExitCode(IntEnum):
    """`submit --watch` and `watch` answer how the job ended; other commands answer whether they did what they say."""

    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    """Wrong arguments, a document with faults, something that does not exist or is not allowed."""
    CANCELLED = 3
    UNREACHABLE = 4
    """No service, or one that cannot serve."""
    INTERRUPTED = 130


_BY_STATE: Final = {State.SUCCEEDED: ExitCode.SUCCEEDED, State.CANCELLED: ExitCode.CANCELLED}

_BY_ERROR: Final[tuple[tuple[type[errors.ShunterError], ExitCode], ...]] = (
    (errors.NotConfigured, ExitCode.UNREACHABLE),
    (errors.Unreachable, ExitCode.UNREACHABLE),
    (errors.ServerError, ExitCode.UNREACHABLE),
    (errors.RateLimited, ExitCode.UNREACHABLE),
    (errors.WaitTimeout, ExitCode.FAILED),
    (errors.DownloadCorrupt, ExitCode.FAILED),
    (errors.ShunterError, ExitCode.USAGE),
)


def of_state(state: State) -> ExitCode:
    """The code for a job that ended so."""
    return _BY_STATE.get(state, ExitCode.FAILED)


def of_error(error: errors.ShunterError) -> ExitCode:
    """The code for an error; the first row that fits."""
    return next(code for kind, code in _BY_ERROR if isinstance(error, kind))
