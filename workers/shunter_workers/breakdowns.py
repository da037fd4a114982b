"""Steps that break, by a fault of ours or of a plugin: tried again less and less often, and told to the job's owner.

Nobody else is held up by one: a claim is given back, and others are taken meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shunter_store.job import jobs, steps
from shunter_store.job.due import Claim
from shunter_store.job.jobs import JobRow
from shunter_store.job.steps import Change
from sqlalchemy import Connection

FIRST_RETRY_S: Final = 10.0
LONGEST_RETRY_S: Final = 300.0
TOLD_AFTER: Final = 3
"""So many in a row are no accident."""
_KEY: Final = "broken_steps"
"""Of `JobRow.facts`: how many broke in a row."""


def note(conn: Connection, claim: Claim, error: Exception) -> None:
    """Give the job back for later.

    Raises:
        StaleStep: another worker has the job by now.
    """
    job = jobs.get(conn, claim.job_id)
    times = 1 + (0 if job is None else _broken(job))
    next_in_s = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** min(times - 1, 10))
    told = {
        "times": times,
        "error": type(error).__name__,
        "message": f"{times} steps of this job broke in a row ({type(error).__name__}); the workers' log says how. "
        "It is tried again, less and less often",
    }
    events: list[tuple[str, Mapping[str, Any]]] = [("job.step_broke", told)] if times == TOLD_AFTER else []
    steps.apply(conn, claim, Change(next_in_s=next_in_s, set={"facts": {_KEY: times}}, events=events))


def forgotten(job: JobRow) -> dict[str, Any]:
    """What of the job's facts changes with a step that went well."""
    return {_KEY: 0} if _broken(job) else {}


def _broken(job: JobRow) -> int:
    return int(job.facts.get(_KEY) or 0)
