"""Commands that look at jobs: `jobs`, `job`, `watch`, `why`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from shunter.cli import filters
from shunter.cli.arguments import JobId
from shunter.cli.command import Context, command

if TYPE_CHECKING:
    from shunter_schemas.api import JobSummary

    from shunter.client import Client

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
Counts = Annotated[bool, typer.Option("--counts", help="Only how many there are in each state.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "jobs", panel="Jobs")(jobs)
    command(app, "job", panel="Jobs")(job)
    command(app, "why", panel="Jobs")(why)
    command(app, "watch", panel="Jobs")(watch)


def jobs(
    context: Context,
    states: filters.States = None,
    labels: filters.LabelFilter = None,
    name: filters.Name = None,
    created_by: filters.CreatedBy = None,
    provider: filters.OnProvider = None,
    commit: filters.CommitFilter = None,
    since: filters.Since = None,
    before: filters.Before = None,
    limit: Limit = 20,
    counts: Counts = False,
) -> None:
    """List jobs, newest first."""
    from shunter.cli import output

    chosen = filters.filters_of(states, labels, name, created_by, provider, commit, since, before)
    with context.client() as client:
        if counts:
            return _counts(context, client)
        rows = list(islice(client.list(**chosen, page_size=min(limit, 100)), limit))
    if context.as_json:
        output.print_json_list(rows)
    elif context.wide:
        headings = ("ID", "NAME", "STATE", "STEP", "CREATED", "FINISHED", "REASON")
        output.print_table(headings, map(_wide_row, rows), empty="no jobs")
    else:
        output.print_table(("ID", "NAME", "STATE", "STEP", "CREATED", "REASON"), map(_row, rows), empty="no jobs")
    return None


def job(context: Context, job_id: JobId) -> None:
    """Show a job: where it is, why, on what, and how it got there."""
    from shunter.cli import output
    from shunter.cli.description import describe

    with context.client() as client:
        found = client.get(job_id)
    if context.as_json:
        output.print_json(found)
    else:
        print("\n".join(describe(found, wide=context.wide)))


def why(context: Context, job_id: JobId) -> None:
    """Say why a job waits, stands or failed, and the way out."""
    from shunter.cli import output
    from shunter.explaining import explain

    with context.client() as client:
        explanation = explain(client, job_id)
    if context.as_json:
        output.print_data(explanation.as_data())
    else:
        print("\n".join(explanation.as_lines()))


def watch(context: Context, job_id: JobId) -> int:
    """Follow a job to its end; exit by how it ended."""
    from shunter.cli import watching

    with context.client() as client:
        return watching.watch(client, job_id, as_json=context.as_json)


def _counts(context: Context, client: Client) -> None:
    from shunter.cli import output

    counts = client.counts()
    if context.as_json:
        return output.print_json(counts)
    rows = [(str(state), str(number)) for state, number in counts.states.items() if number]
    paused = [("  paused", str(counts.paused))] if counts.paused else []
    return output.print_table(("STATE", "JOBS"), [*rows, *paused, ("all", str(counts.total))], empty="no jobs")


def _row(job: JobSummary) -> tuple[str, ...]:
    from shunter.cli import output

    step = "" if job.step is None else str(job.step)
    total = f"/{job.total_steps}" if step and job.total_steps else ""
    return job.id, job.name, _state(job), step + total, output.age(job.created_at), job.reason or ""


def _wide_row(job: JobSummary) -> tuple[str, ...]:
    from shunter.cli import output

    *row, _, reason = _row(job)
    return *row, output.clock(job.created_at), output.clock(job.finished_at), reason


def _state(job: JobSummary) -> str:
    return f"{job.state} (paused)" if job.paused else str(job.state)
