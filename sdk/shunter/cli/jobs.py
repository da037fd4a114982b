"""Commands that look at jobs: `jobs`, `job`, `watch`, `why`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from shunter.cli import filters
from shunter.cli.arguments import JobId
from shunter.cli.codes import ExitCode
from shunter.cli.command import Context, command

if TYPE_CHECKING:
    from shunter_schemas.api import JobSummary

    from shunter.client import Client

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Keep the list on the screen as it changes, until Ctrl-C.")]
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
    watch: Watch = False,
) -> int:
    """List jobs, newest first."""
    from shunter.cli import listing, output

    chosen = filters.filters_of(states, labels, name, created_by, provider, commit, since, before)
    if counts and watch:
        raise typer.BadParameter("--counts and --watch do not go together: leave one out", param_hint="--watch")
    with context.client() as client:
        if counts:
            return _counts(context, client)

        def read(most: int = limit) -> list[JobSummary]:
            return list(islice(client.list(**chosen, page_size=min(most, 100)), most))

        form = listing.Form(as_json=context.as_json, wide=context.wide)
        if watch:
            return listing.follow(read, form)
        found = read(limit + 1)
        listing.show(found[:limit], form)
        if len(found) > limit and not context.as_json:
            output.say(f"the newest {limit}; there are more: --limit shows them, --counts how many")
        return ExitCode.SUCCEEDED


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


def _counts(context: Context, client: Client) -> int:
    from shunter.cli import output

    counts = client.counts()
    if context.as_json:
        output.print_json(counts)
        return 0
    rows = [(str(state), str(number)) for state, number in counts.states.items() if number]
    paused = [("  paused", str(counts.paused))] if counts.paused else []
    output.print_table(("STATE", "JOBS"), [*rows, *paused, ("all", str(counts.total))], empty="no jobs")
    return 0
