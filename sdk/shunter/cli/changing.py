"""Commands that change jobs: `cancel`, `retry`, `pause`, `resume`, `checkpoint`, `move`, `update`, `delete`."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shunter.cli import filters
from shunter.cli.arguments import JobId, JobIds, Limits, Priority, SetLabels, Watch, Yes, labels_of, limits_of
from shunter.cli.codes import ExitCode
from shunter.cli.command import Context, command
from shunter.cli.each import Each

if TYPE_CHECKING:
    from shunter_schemas.api import Job

    from shunter.client import Client


class StartFrom(StrEnum):
    """Where a new job takes up its document."""

    CHECKPOINT = "checkpoint"
    START = "start"


Wait = Annotated[bool, typer.Option("--wait", help="Wait until its nodes are gone.")]
From = Annotated[
    StartFrom | None,
    typer.Option("--from", help="checkpoint: the last one, and the same source. Default: it, where there is one."),
]

Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help='strategy.kind=fsdp, resources.gpus=4, placement.providers=["lambda"] … Repeatable; null takes away.',
    ),
]
AnotherStrategy = Annotated[
    str | None,
    typer.Option(
        "--strategy", help="Go on under another strategy: its kind, such as fsdp, or all of it as JSON.", metavar="TEXT"
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "cancel", panel="Jobs")(cancel)
    command(app, "retry", panel="Jobs")(retry)
    command(app, "pause", panel="Jobs")(pause)
    command(app, "resume", panel="Jobs")(resume)
    command(app, "checkpoint", panel="Jobs")(checkpoint)
    command(app, "move", panel="Jobs")(move)
    command(app, "update", panel="Jobs")(update)
    command(app, "delete", panel="Jobs")(delete)


def cancel(
    context: Context,
    job_ids: JobIds = None,
    states: filters.States = None,
    labels: filters.LabelFilter = None,
    name: filters.Name = None,
    created_by: filters.CreatedBy = None,
    provider: filters.OnProvider = None,
    commit: filters.CommitFilter = None,
    since: filters.Since = None,
    before: filters.Before = None,
    wait: Wait = False,
    yes: Yes = False,
) -> int:
    """Ask jobs to stop, by id or by what they have in common. They may save a last checkpoint; what they left stays."""
    chosen = filters.filters_of(states, labels, name, created_by, provider, commit, since, before)
    if bool(job_ids) == bool(chosen):
        raise typer.BadParameter("give ids, or options that choose jobs, such as --label")
    several = bool(chosen) or len(job_ids or ()) > 1
    with context.client() as client:
        each = Each(context, several=several)
        if chosen:
            jobs = each.done(client.get, _cancel_all(client, chosen, yes=yes))
        else:
            jobs = each.done(client.cancel, job_ids or ())
        jobs = [client.wait(job.id) for job in jobs] if wait else jobs
    if jobs or several:
        _print_jobs(context, jobs, as_list=several)
    return each.code


def retry(
    context: Context,
    job_id: JobId,
    start_from: From = None,
    labels: SetLabels = None,
    priority: Priority = None,
    limits: Limits = None,
    strategy: AnotherStrategy = None,
    watch: Watch = False,
) -> int:
    """Submit the document of a job that has ended again, from its last checkpoint; prints the new job's id."""
    from shunter.cli import watching

    with context.client() as client:
        job = client.retry(
            job_id,
            start_from=start_from.value if start_from else None,
            labels=labels_of(labels or ()),
            priority=priority,
            limits=limits_of(limits or ()),
            strategy=_strategy_of(strategy),
        )
        if watch:
            return watching.watch_new(client, job.id, as_json=context.as_json)
    watching.print_new(job, as_json=context.as_json)
    return ExitCode.SUCCEEDED


def _strategy_of(given: str | None) -> dict[str, Any] | None:
    if given is None or not given.lstrip().startswith("{"):
        return {"kind": given} if given else None
    try:
        strategy: dict[str, Any] = json.loads(given)
    except ValueError as error:
        raise typer.BadParameter(f"--strategy is no JSON: {error}") from error
    return strategy


def pause(context: Context, job_id: JobId) -> None:
    """Ask a job to save a checkpoint and give its nodes back, until `shunter resume`."""
    with context.client() as client:
        _print_jobs(context, [client.pause(job_id)])


def resume(context: Context, job_id: JobId) -> None:
    """Let a paused job go on from its last checkpoint."""
    with context.client() as client:
        _print_jobs(context, [client.resume(job_id)])


def checkpoint(context: Context, job_id: JobId) -> None:
    """Ask a running job to save a checkpoint now."""
    from shunter.cli import output

    with context.client() as client:
        _print_jobs(context, [client.checkpoint(job_id)])
    output.say(f"asked for; once it is whole it stands in: shunter checkpoints {job_id}")


def move(context: Context, job_id: JobId, settings: Changes = None, watch: Watch = False) -> int:
    """Ask a job to save a checkpoint and go on from it, as the same job, under a changed document."""
    from shunter.cli import watching

    with context.client() as client:
        job = client.move(job_id, **_changes_of(client, job_id, settings or ()))
        if watch:
            return watching.watch_new(client, job.id, as_json=context.as_json)
    _print_jobs(context, [job])
    return ExitCode.SUCCEEDED


def _changes_of(client: Client, job_id: str, settings: Sequence[str]) -> dict[str, Any]:
    """The parts that the settings name. Knobs of a strategy without its kind are meant for the job's own one."""
    from shunter_schemas.changes import MOVABLE

    from shunter.document import with_values

    changes = with_values({}, settings)
    if not changes or changes.keys() - set(MOVABLE):
        raise typer.BadParameter(f"give what to change, each in {', '.join(MOVABLE)}: --set strategy.kind=fsdp")
    strategy = changes.get("strategy")
    if isinstance(strategy, dict) and "kind" not in strategy:
        changes["strategy"] = {**client.get(job_id).spec["strategy"], **strategy}
    return changes


def update(
    context: Context, job_id: JobId, labels: SetLabels = None, priority: Priority = None, limits: Limits = None
) -> None:
    """Change labels, priority and limits of a job, also while it runs."""
    if not (labels or priority or limits):
        raise typer.BadParameter("give what to change: --label, --priority or --limit")
    with context.client() as client:
        changes: dict[str, Any] = {"labels": labels_of(labels or ()), "limits": limits_of(limits or ())}
        _print_jobs(context, [client.update(job_id, priority=priority, **changes)])


def delete(context: Context, job_ids: JobIds = None, yes: Yes = False) -> int:
    """Delete the records of jobs that have ended, with their logs, metrics and files."""
    from shunter.cli import output

    if not job_ids:
        raise typer.BadParameter("give the ids of the jobs")
    _confirm(f"delete {_number(job_ids)} with logs, metrics and files?", yes=yes)

    def delete_one(client: Client, job_id: str) -> str:
        client.delete(job_id)
        if not context.as_json:
            print(f"{job_id}  deleted")
        return job_id

    each = Each(context, several=len(job_ids) > 1)
    with context.client() as client:
        deleted = each.done(functools.partial(delete_one, client), job_ids)
    if context.as_json:
        output.print_data({"deleted": deleted})
    return each.code


def _cancel_all(client: Client, chosen: dict[str, Any], *, yes: bool) -> list[str]:
    from shunter_schemas.states import LIVE_STATES

    from shunter.cli import output

    if not yes and sys.stdin.isatty():
        living = {"states": sorted(LIVE_STATES), **chosen}
        found = list(client.list(**living))
        for job in found[:10]:
            output.say(f"{job.id}  {job.name}  {job.state}")
        _confirm(f"cancel {_number(found)}?", yes=yes)
    return list(client.cancel_all(**chosen))


def _confirm(question: str, *, yes: bool) -> None:
    """Ask, where there is somebody to ask."""
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True, err=True)


def _number(things: Sequence[object]) -> str:
    return "1 job" if len(things) == 1 else f"{len(things)} jobs"


def _print_jobs(context: Context, jobs: list[Job], *, as_list: bool = False) -> None:
    from shunter.cli import output
    from shunter.display import status_line

    if context.as_json:
        if as_list:
            output.print_json_list(jobs)
        else:
            output.print_json(jobs[0])
        return
    for job in jobs:
        print(f"{job.id}  {status_line(job)}")
    if not jobs:
        output.say("no jobs")
