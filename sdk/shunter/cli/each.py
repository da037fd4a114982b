"""One wish for several jobs: that one of them refuses keeps it from none of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from shunter.cli import codes
from shunter.cli.command import Context, tell
from shunter.errors import ApiError

T = TypeVar("T")

_ABOUT_ONE = range(400, 500)
"""Answers that speak of the one job; others, and no answer at all, would be the same for the next one."""


class Each:
    """Does one thing for each of several jobs, and tells the errors as they come."""

    def __init__(self, context: Context, *, several: bool) -> None:
        self._context = context
        self._several = several
        self.code: int = codes.ExitCode.SUCCEEDED
        """That of the first error."""

    def done(self, act: Callable[[str], T], job_ids: Iterable[str]) -> list[T]:
        """What came of it, in order, without the jobs that refused.

        Raises:
            ShunterError: there is one job only, or it is not about the job.
        """
        found = list[T]()
        for job_id in job_ids:
            try:
                found.append(act(job_id))
            except ApiError as error:
                if not self._several or error.status not in _ABOUT_ONE or error.status in (401, 403, 429):
                    raise
                self.code = self.code or codes.of_error(error)
                tell(error, about=job_id, as_json=self._context.as_json, verbose=self._context.verbose)
        return found
