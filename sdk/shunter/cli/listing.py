"""A list of jobs for people and for programs, once or for as long as somebody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from shunter.cli import output
from shunter.errors import Unreachable

if TYPE_CHECKING:
    from shunter_schemas.api import JobSummary

EVERY_S = 2.0
_HEADINGS = ("ID", "NAME", "STATE", "STEP", "CREATED", "REASON")
_WIDE_HEADINGS = ("ID", "NAME", "STATE", "STEP", "CREATED", "FINISHED", "REASON")


@dataclass(frozen=True, slots=True)
class Form:
    """How the list is wanted."""

    as_json: bool
    wide: bool


def show(jobs: Sequence[JobSummary], form: Form) -> int:
    """Print the list."""
    if form.as_json:
        output.print_json_list(jobs)
    elif jobs:
        print("\n".join(_lines(jobs, form)))
    else:
        output.say("no jobs")
    return 0


def follow(read: Callable[[], Sequence[JobSummary]], form: Form, *, every_s: float = EVERY_S) -> int:
    """Show the list anew whenever it has changed, until Ctrl-C: in place on a terminal, below each other elsewhere.

    A service that is away for a while is said to be, and asked again.
    """
    try:
        if sys.stdout.isatty() and not form.as_json:
            _in_place(read, form, every_s)
        _below_each_other(read, form, every_s)
    except KeyboardInterrupt:
        return 0


def _in_place(read: Callable[[], Sequence[JobSummary]], form: Form, every_s: float) -> NoReturn:
    from rich.live import Live
    from rich.text import Text

    with Live(Text("…"), auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            try:
                lines = _lines(read(), form)
            except Unreachable as error:
                lines = [str(error)]
            live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)
            time.sleep(every_s)


def _below_each_other(read: Callable[[], Sequence[JobSummary]], form: Form, every_s: float) -> NoReturn:
    shown: Sequence[JobSummary] | None = None
    while True:
        try:
            jobs = read()
        except Unreachable as error:
            output.say(str(error))
        else:
            if jobs != shown:
                show(jobs, form)
                sys.stdout.flush()
            shown = jobs
        time.sleep(every_s)


def _lines(jobs: Sequence[JobSummary], form: Form) -> list[str]:
    if form.wide:
        return output.table_lines(_WIDE_HEADINGS, map(_wide_row, jobs))
    return output.table_lines(_HEADINGS, map(_row, jobs))


def _row(job: JobSummary) -> tuple[str, ...]:
    step = "" if job.step is None else str(job.step)
    total = f"/{job.total_steps}" if step and job.total_steps else ""
    return job.id, job.name, _state(job), step + total, output.age(job.created_at), job.reason or ""


def _wide_row(job: JobSummary) -> tuple[str, ...]:
    *row, _, reason = _row(job)
    return *row, output.clock(job.created_at), output.clock(job.finished_at), reason


def _state(job: JobSummary) -> str:
    return f"{job.state} (paused)" if job.paused else str(job.state)
