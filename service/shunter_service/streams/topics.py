"""Topics of the one stream that a client holds: `jobs`, `job:ID:events`, `job:ID:logs`, `job:ID:metrics`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal, cast

from shunter_schemas.ids import is_id

from shunter_service.web.problems import ProblemError, bad_parameter

MOST_TOPICS: Final = 32
JOBS: Final = "jobs"
KINDS: Final = ("events", "logs", "metrics")
_OF_A_JOB = re.compile(r"job:([^:@]*):([^:@]*)(?:@(\d{1,15}))?")
_FORMS: Final = "`jobs`, `job:ID:events`, `job:ID:logs` and `job:ID:metrics`"

Kind = Literal["jobs", "events", "logs", "metrics"]


@dataclass(frozen=True, slots=True)
class Topic:
    """Something to follow."""

    name: str
    """As in messages: without a place."""
    kind: Kind
    job_id: str = ""
    after: int = 0
    """Only what comes after this event, line or point."""


def parse(text: str) -> Sequence[Topic]:
    """The topics of the query parameter `topics`, at least one.

    Raises:
        ProblemError: 422, naming what is not understood and the nearest that would be.
    """
    if not text:
        raise bad_parameter("topics", f"is missing: name what to follow; there are {_FORMS}")
    names = [part.strip() for part in text.split(",")]
    if len(names) > MOST_TOPICS:
        raise bad_parameter("topics", f"{len(names)} topics are more than the {MOST_TOPICS} that a stream carries")
    topics = [_topic(name) for name in names]
    known: set[str] = set()
    for topic in topics:
        if topic.name in known:
            raise bad_parameter("topics", f"`{topic.name}` is named twice")
        known.add(topic.name)
    return topics


def _topic(text: str) -> Topic:
    if text == JOBS:
        return Topic(JOBS, "jobs")
    match = _OF_A_JOB.fullmatch(text)
    if match is None or match[2] not in KINDS:
        raise bad_parameter("topics", f"`{text[:100]}` is no topic; {_way_out(text)}")
    job_id, kind, after = match.groups()
    if not is_id("job", job_id):
        raise bad_parameter("topics", f"`{job_id[:60]}` in `{text[:100]}` is no job's id")
    return Topic(f"job:{job_id}:{kind}", cast("Kind", kind), job_id, int(after or 0))


def _way_out(text: str) -> str:
    first, _, rest = text.partition(":")
    job_id, _, last = rest.partition(":")
    kind, _, place = last.partition("@")
    if first == "job" and job_id:
        if kind in KINDS and place:
            return f"what follows `@` is the number of the last {kind.removesuffix('s')} that was seen"
        if near := get_close_matches(kind, KINDS, n=1):
            return f"did you mean `job:{job_id[:60]}:{near[0]}`?"
    elif not rest and (near := get_close_matches(first.partition("@")[0], [JOBS], n=1)):
        return f"did you mean `{near[0]}`?"
    return f"there are {_FORMS}"


def unreadable() -> ProblemError:
    """400 for a cursor that cannot be one of ours."""
    return ProblemError(
        "bad_cursor",
        "the cursor (`Last-Event-ID` or `cursor`) was not given out by a stream of this service: open the stream "
        "without one, and read the pages of its topics for what came before",
    )
