"""Commands about what jobs report and leave: `logs`, `events`, `metrics`, `artifacts`; and `providers`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shunter.cli.command import Context, JobId, command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shunter_schemas.api import Artifact, Event, LogLine

    from shunter.client import Client

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")]
Rank = Annotated[int | None, typer.Option("--rank", help="Only this rank; -1 is the set-up. Default: all, merged.")]
Tail = Annotated[int | None, typer.Option("--tail", min=1, help="Only the last lines.")]
Download = Annotated[Path | None, typer.Option("--download", metavar="DIR", help="Fetch every file into this folder.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "logs", panel="What jobs report and leave")(logs)
    command(app, "events", panel="What jobs report and leave")(events)
    command(app, "artifacts", panel="What jobs report and leave")(artifacts)
    command(app, "providers", panel="Service")(providers)


def logs(context: Context, job_id: JobId, follow: Follow = False, rank: Rank = None, tail: Tail = None) -> None:
    """Print a job's output."""
    from shunter.cli import output

    with context.client() as client:
        for line in _lines(client, job_id, follow=follow, rank=rank, tail=tail):
            if context.as_json:
                output.print_json(line)
            else:
                print(line.text if rank is not None else f"{_origin(line)} {line.text}", flush=follow)


def events(context: Context, job_id: JobId, follow: Follow = False) -> None:
    """Print what happened to a job."""
    from shunter.cli import output

    with context.client() as client:
        for event in client.follow_events(job_id) if follow else client.events(job_id):
            if context.as_json:
                output.print_json(event)
            else:
                print(_event_line(event), flush=follow)


def artifacts(context: Context, job_id: JobId, download: Download = None) -> None:
    """List what a job left, or fetch it: whole and checked, and only what is not there yet."""
    from shunter.cli import output, transfers

    with context.client() as client:
        found = list(client.artifacts(job_id))
        if download is not None:
            with transfers.shown() as progress:
                client.download_artifacts(job_id, download, progress=progress)
    if context.as_json:
        output.print_json_list(found)
    elif download is not None:
        total = output.in_bytes(sum(artifact.size_bytes for artifact in found))
        print(f"{len(found)} files, {total}, in {download}")
    else:
        output.print_table(("PATH", "SIZE", "SHA-256"), map(_artifact_row, found), empty="no artifacts")


def providers(context: Context) -> None:
    """List the configured provider instances and how they are."""
    from shunter.cli import output

    with context.client() as client:
        found = client.providers()
    if context.as_json:
        output.print_json_list(found)
        return
    rows = ((p.name, p.plugin, p.status, "yes" if p.bills else "no", output.age(p.read_at), p.detail) for p in found)
    output.print_table(("NAME", "PLUGIN", "STATUS", "BILLS", "READ", "DETAIL"), rows, empty="no providers")


def _lines(client: Client, job_id: str, *, follow: bool, rank: int | None, tail: int | None) -> Iterator[LogLine]:
    last = 0
    for line in client.logs(job_id, rank=rank, tail=tail):
        last = line.line
        yield line
    if follow:
        yield from client.follow_logs(job_id, rank=rank, after=last)


def _origin(line: LogLine) -> str:
    return f"[{'set-up' if line.rank < 0 else line.rank}]"


def _event_line(event: Event) -> str:
    import json

    from shunter.cli import output

    data = json.dumps(event.data, ensure_ascii=False) if event.data else ""
    return f"{event.seq:>4}  {output.clock(event.at)}  {event.type:<22} {data}".rstrip()


def _artifact_row(artifact: Artifact) -> tuple[str, ...]:
    from shunter.cli import output

    return artifact.path, output.in_bytes(artifact.size_bytes), artifact.sha256
