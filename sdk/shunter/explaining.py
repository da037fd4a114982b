"""Why a job waits, stands or failed, in sentences, with the way out. `shunter why` prints it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from shunter_schemas.api import Job, Tried
from shunter_schemas.reasons import meaning
from shunter_schemas.states import TERMINAL_STATES, Health, Reason, State

from shunter.display import came_back, duration, steps
from shunter.errors import ShunterError

if TYPE_CHECKING:
    from shunter.client import Client

_LAST_LINES: Final = 15
_UNPLANNED_FOR_S: Final = 10.0
_IN_THE_PROGRAM: Final = (Reason.USER_ERROR, Reason.OUT_OF_MEMORY, Reason.RECOVERY_EXHAUSTED)
_FROM_A_CHECKPOINT: Final = (Reason.BUDGET_EXHAUSTED, Reason.DURATION_EXCEEDED, Reason.LEASE_EXPIRED, Reason.QUOTA)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say about a job."""

    headline: str
    sentences: tuple[str, ...]
    tried: tuple[Tried, ...] = ()
    message: tuple[str, ...] = ()
    """Lines of the job's own message: the last words of the first rank that failed."""
    output: tuple[str, ...] = ()
    """The last lines of output, where the message does not hold them."""
    ways_out: tuple[str, ...] = ()

    def as_lines(self) -> list[str]:
        """For people."""
        lines = [self.headline, *(f"  {sentence}" for sentence in self.sentences)]
        for one in self.tried:
            where = " ".join(part for part in (one.provider, one.instance_type, one.region) if part)
            lines.append(f"  tried {where}: {one.detail or meaning(one.reason).meaning}")
        for title, block in (("what it said", self.message), ("its last output", self.output)):
            lines += ["", f"{title}:", *(f"  {line}" for line in block)] if block else []
        lines += ["", "the way out:", *(f"  {way}" for way in self.ways_out)] if self.ways_out else []
        return lines

    def as_data(self) -> dict[str, Any]:
        """For programs."""
        return {
            "headline": self.headline,
            "sentences": list(self.sentences),
            "tried": [one.model_dump(mode="json") for one in self.tried],
            "message": list(self.message),
            "output": list(self.output),
            "ways_out": list(self.ways_out),
        }


def explain(client: Client, job_id: str) -> Explanation:
    """Ask the service for what is needed, and say it."""
    job = client.get(job_id)
    return explained(job, last_output(client, job), workers_are_there(client, job))


def explained(job: Job, output: Sequence[str] = (), workers: bool = True) -> Explanation:
    """What there is to say about this job, given its last lines of output and whether any worker lives."""
    return Explanation(
        headline=_headline(job),
        sentences=tuple(_sentences(job, workers)),
        tried=job.waiting.tried if job.waiting and job.state not in TERMINAL_STATES else (),
        message=tuple((job.message or "").splitlines()),
        output=tuple(output),
        ways_out=tuple(_ways_out(job, workers)),
    )


def last_output(client: Client, job: Job) -> list[str]:
    """The end of the output that tells most: of the rank that failed, of the set-up, else of all ranks.

    Nothing where the job has not failed, or its message holds that already.
    """
    if job.outcome is not State.FAILED or len((job.message or "").splitlines()) > 1:
        return []
    rank = -1 if job.reason == Reason.SETUP_FAILED else failing_rank(job.message or "")
    lines = deque(client.logs(job.id, rank=rank, tail=_LAST_LINES), _LAST_LINES)
    return [line.text if rank is not None else f"[{line.rank}] {line.text}" for line in lines]


def failing_rank(message: str) -> int | None:
    """The rank that a message names first."""
    found = re.search(r"\brank (\d+)\b", message)
    return int(found[1]) if found else None


def workers_are_there(client: Client, job: Job) -> bool:
    """Whether a worker lives; asked only for a job that nobody has taken up."""
    if job.state is not State.QUEUED or job.waiting is not None:
        return True
    try:
        workers = client.readiness().checks.get("workers")
    except ShunterError:
        return True  # nothing is known, so nothing is said
    return workers is None or workers.ok


def _headline(job: Job) -> str:
    parts = [f"{job.id} ({job.name}) {_HAPPENS.get(job.state, f'is {job.state}')}"]
    if job.state in TERMINAL_STATES and job.finished_at:
        begun = job.started_at or job.created_at
        parts.append(f" after {duration((job.finished_at - begun).total_seconds())}")
    if job.reason and job.outcome is not State.SUCCEEDED:
        parts.append(f": {job.reason}")
    return "".join(parts)


_HAPPENS: Final = {
    State.QUEUED: "waits",
    State.PROVISIONING: "gets its nodes",
    State.STARTING: "starts",
    State.RUNNING: "runs",
    State.RECOVERING: "recovers",
    State.STOPPING: "is stopping",
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "was cancelled",
}


def _sentences(job: Job, workers: bool) -> Iterator[str]:
    if job.reason and job.outcome is not State.SUCCEEDED:
        yield _sentence(meaning(job.reason).meaning)
    if job.pause_requested_at is not None and job.state not in TERMINAL_STATES:
        at_rest = "It is paused" if job.state is State.QUEUED else "It is about to pause"
        yield f"{at_rest}: somebody asked for it {_ago(job.pause_requested_at)}."
    elif job.waiting is not None and job.state not in TERMINAL_STATES:
        yield from _waiting(job)
    elif job.state is State.QUEUED:
        yield from _unplanned(job, workers)
    if job.state in (State.STARTING, State.RUNNING, State.STOPPING):
        yield from _standing(job)
    yield from _lost(job)
    if job.progress is not None and job.outcome is not State.SUCCEEDED:
        yield f"It has come to {steps(job)}."


def _waiting(job: Job) -> Iterator[str]:
    waiting = job.waiting
    assert waiting is not None
    yield _sentence(f"it waits: {waiting.detail or meaning(waiting.reason).meaning}")
    if waiting.position is not None:
        before = f", behind {', '.join(waiting.blocked_by)}" if waiting.blocked_by else ""
        yield f"It has place {waiting.position} in the queue{before}."
    elif waiting.blocked_by:
        yield f"What it waits for is held by {', '.join(waiting.blocked_by)}."
    if waiting.next_try_at is not None:
        left_s = (waiting.next_try_at - datetime.now(UTC)).total_seconds()
        yield f"It is tried again in {duration(left_s)}." if left_s > 0 else "It is tried again now."


def _unplanned(job: Job, workers: bool) -> Iterator[str]:
    age_s = (datetime.now(UTC) - job.created_at).total_seconds()
    if not workers:
        yield "No worker runs, so nobody takes it up."
    elif age_s < _UNPLANNED_FOR_S:
        yield "It was just accepted; a worker plans it within seconds."
    else:
        yield f"It was accepted {duration(age_s)} ago, and no worker has planned it yet."


def _standing(job: Job) -> Iterator[str]:
    if job.state is State.STARTING:
        yield "Its nodes are ready; source, inputs and requirements are being set up (output of rank -1)."
    if job.state is State.STOPPING:
        yield "Checkpoints, files and output are being collected, and its nodes released."
    if job.health is Health.UNREACHABLE:
        yield "Its nodes do not report at the moment. That is a gap in the reports and no failure: they go on alone."


def _lost(job: Job) -> Iterator[str]:
    lost = [attempt for attempt in job.attempts if attempt.how == "lost"]
    for attempt in lost[-3:]:
        why = attempt.message or (meaning(attempt.reason).meaning if attempt.reason else "a node or a rank was lost")
        first = why.splitlines()[0] if why else ""
        at = f" after step {attempt.last_step}" if attempt.last_step is not None else ""
        yield f"Start {attempt.generation} was lost{at}: {first}."
    for attempt in job.attempts[-1:]:
        if attempt.recovery is not None:
            yield _sentence(came_back(attempt.recovery))


def _ways_out(job: Job, workers: bool) -> Iterator[str]:
    if job.state in TERMINAL_STATES or job.outcome is not None:
        yield from _after_the_end(job)
    elif job.pause_requested_at is not None:
        yield f"let it go on: shunter resume {job.id}"
    elif not workers:
        yield "start one: shunter worker (shunter up runs one too); shunter doctor finds what is missing"
    elif job.waiting is not None:
        if way := meaning(job.waiting.reason).way_out:
            yield way
        yield "see what there is: shunter providers"
        yield f"let it go first: shunter update {job.id} --priority high"
        yield f"give it up: shunter cancel {job.id}"
    else:
        yield f"follow it: shunter watch {job.id}"


def _after_the_end(job: Job) -> Iterator[str]:
    if job.outcome is State.SUCCEEDED:
        yield f"fetch what it made: shunter artifacts {job.id} --download DIR"
        return
    if job.reason and (way := meaning(job.reason).way_out):
        yield way
    if job.reason == Reason.SETUP_FAILED:
        yield f"the whole set-up: shunter logs {job.id} --rank -1"
    elif job.reason in _IN_THE_PROGRAM:
        yield f"the whole output: shunter logs {job.id}"
        yield f"submit it with the source as it is now: shunter submit --like {job.id} --source DIR"
    if job.reason in _FROM_A_CHECKPOINT or job.outcome is State.CANCELLED:
        yield f"go on from the last checkpoint: shunter retry {job.id}"
    yield f"what happened in order: shunter events {job.id}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith(('.', '!', '?')) else '.'}"


def _ago(moment: datetime) -> str:
    return f"{duration((datetime.now(UTC) - moment).total_seconds())} ago"
