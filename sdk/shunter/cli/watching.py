"""Following a job to its end on the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from shunter_schemas.states import State

from shunter.cli import codes, output
from shunter.display import make_display, summary

_LOSSES: Final = frozenset({"node.outputs_left_out", "node.upload_failed", "job.results_incomplete"})

if TYPE_CHECKING:
    from shunter_schemas.api import Job

    from shunter.client import Client


def watch(client: Client, job_id: str, *, as_json: bool = False) -> int:
    """Show the job until it has ended; the exit code says how. Ctrl-C leaves the job running and says how to go on."""
    try:
        with make_display(sys.stderr if as_json else sys.stdout) as display:
            job = client.wait(job_id, progress=display.show, away=display.away, poll_s=0.5)
    except KeyboardInterrupt:
        output.say(f"\n{job_id} goes on. Follow it: shunter watch {job_id}   Stop it: shunter cancel {job_id}")
        return codes.ExitCode.INTERRUPTED
    if as_json:
        output.print_json(job)
    else:
        print_end(job)
        _tell_losses(client, job)
    return codes.of_state(job.state)


def _tell_losses(client: Client, job: Job) -> None:
    """Whether something that the job left could not be stored; that takes nothing from its success."""
    lost = [event for event in client.events(job.id) if event.type in _LOSSES]
    if lost:
        output.say(f"not all that it left could be stored; what, and why: shunter events {job.id}")


def watch_new(client: Client, job_id: str, *, as_json: bool = False) -> int:
    """`watch`, for a job whose id nobody has seen yet."""
    output.say(job_id)
    return watch(client, job_id, as_json=as_json)


def print_new(job: Job, *, as_json: bool = False) -> None:
    """The id of a new job, and how to follow it."""
    if as_json:
        output.print_json(job)
        return
    print(job.id)
    output.say(f"follow it with: shunter watch {job.id}")


def print_end(job: Job) -> None:
    """How it ended, why if it did not succeed, and where what it left is."""
    print(f"{job.id}  {summary(job)}")
    if job.message:
        output.say(job.message)
    if job.state == State.FAILED:
        output.say(f"why, and the way out: shunter why {job.id}   its output: shunter logs {job.id} --tail 100")
    elif job.state == State.SUCCEEDED:
        output.say(f"what it made: shunter artifacts {job.id} --download DIR")
