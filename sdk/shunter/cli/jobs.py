"""Commands about jobs: `jobs`, `job`, `watch`, `cancel`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from shunter.cli.command import Context, JobId, command

if TYPE_CHECKING:
    from shunter_schemas.api import Job, JobSummary

States = Annotated[list[str] | None, typer.Option("--state", help="Only jobs in this state. Repeatable.")]
Name = Annotated[str | None, typer.Option("--name", help="Only jobs of this name.")]
LabelFilter = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Only jobs so labelled. Repeatable.")
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until its nodes are gone.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "jobs", panel="Jobs")(jobs)
    command(app, "job", panel="Jobs")(job)
    command(app, "watch", panel="Jobs")(watch)
    command(app, "cancel", panel="Jobs")(cancel)


def jobs(
    context: Context, states: States = None, name: Name = None, labels: LabelFilter = None, limit: Limit = 20
) -> None:
    """List jobs, newest first."""
    from shunter.cli import output

    with context.client() as client:
        found = client.list(states=states or (), name=name, labels=_pairs(labels or []), page_size=min(limit, 100))
        rows = list(islice(found, limit))
    if context.as_json:
        output.print_json_list(rows)
        return
    output.print_table(("ID", "NAME", "STATE", "STEP", "CREATED", "REASON"), map(_row, rows), empty="no jobs")


def job(context: Context, job_id: JobId) -> None:
    """Show a job: where it is, why, on what, and how it got there."""
    from shunter.cli import output
    from shunter.cli.description import describe

    with context.client() as client:
        found = client.get(job_id)
    if context.as_json:
        output.print_json(found)
    else:
        print("\n".join(describe(found)))


def watch(context: Context, job_id: JobId) -> int:
    """Follow a job to its end; exit by how it ended."""
    from shunter.cli import watching

    with context.client() as client:
        return watching.watch(client, job_id, as_json=context.as_json)


def cancel(context: Context, job_id: JobId, wait: Wait = False) -> None:
    """Ask a job to stop. It may save a last checkpoint; what it left stays."""
    from shunter.cli import output

    with context.client() as client:
        found: Job = client.cancel(job_id)
        if wait:
            found = client.wait(job_id)
    if context.as_json:
        output.print_json(found)
    else:
        print(f"{found.id}  {found.state}")


def _row(job: JobSummary) -> tuple[str, ...]:
    from shunter.cli import output

    step = "" if job.step is None else str(job.step)
    total = f"/{job.total_steps}" if step and job.total_steps else ""
    return job.id, job.name, str(job.state), step + total, output.age(job.created_at), job.reason or ""


def _pairs(labels: list[str]) -> dict[str, str]:
    pairs = dict[str, str]()
    for label in labels:
        name, equals, value = label.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{label!r} is not NAME=VALUE", param_hint="--label")
        pairs[name] = value
    return pairs
