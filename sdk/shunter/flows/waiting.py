"""Waiting for a job's end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from shunter_schemas.api import Job
from shunter_schemas.states import TERMINAL_STATES

from shunter.errors import ShunterError, WaitTimeout
from shunter.flows.answers import get, job_path
from shunter.retries import Away, Patience, Retries
from shunter.steps import Call, Flow, ask, pause

_LONG_POLL_S = 25.0
_FIRST_TIMEOUT_S = 5.0
_LONGEST_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Wait:
    """How long and how closely a job is looked at."""

    until: Literal["released", "outcome"] = "released"
    timeout_s: float | None = None
    poll_s: float = 1.0
    patience_s: float = 300.0

    def is_over(self, job: Job) -> bool:
        """Whether this is what was waited for."""
        return job.state in TERMINAL_STATES or (self.until == "outcome" and job.outcome is not None)


def wait(
    job_id: str, how: Wait, retries: Retries, progress: Callable[[Job], None] | None, away: Away | None
) -> Flow[Job]:
    """Look until it is over. With `progress` every `poll_s`; without, the service answers when the job changes."""
    deadline = time.monotonic() + (math.inf if how.timeout_s is None else how.timeout_s)
    patience = Patience(retries, how.patience_s, away)
    job: Job | None = None
    while True:
        seen, begun = job, time.monotonic()
        left_s = deadline - begun
        hold_s = 0.0 if progress or seen is None else min(_LONG_POLL_S, max(0.0, left_s))
        try:
            job = yield from ask(_look(job_id, seen, hold_s, patience.failures))
        except ShunterError as error:
            if left_s <= 0:
                raise
            yield from pause(min(patience.bear(error), left_s))
            continue
        patience.reset()
        if progress:
            progress(job)
        if how.is_over(job):
            return job
        if left_s <= 0:
            raise WaitTimeout(f"{job_id} is still {job.state} after {how.timeout_s:g} s", hint="it goes on")
        changed = seen is not None and job.revision > seen.revision
        if progress or not (changed or time.monotonic() - begun >= how.poll_s):  # a service may not hold answers back
            yield from pause(min(how.poll_s, left_s))


def _look(job_id: str, seen: Job | None, hold_s: float, failures: int) -> Call[Job]:
    """The job; with `hold_s` the service answers when it has changed since it was seen, or after that time.

    The first time-out is short, so that a service that hangs is noticed soon; a slow one is given more each time.
    """
    params = {"wait_s": hold_s, "after_revision": seen.revision} if seen and hold_s else {}
    timeout_s = min(_LONGEST_TIMEOUT_S, _FIRST_TIMEOUT_S * 2 ** min(failures, 3))
    return get(Job, job_path(job_id), params, hold_s=hold_s, timeout_s=timeout_s, tries=1)
