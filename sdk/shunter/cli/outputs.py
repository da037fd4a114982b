"""Commands about what jobs report and leave: `logs`, `events`, `metrics`, `checkpoints`, `artifacts`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shunter.cli.arguments import JobId
from shunter.cli.command import Context, command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shunter_schemas.api import Artifact, Checkpoint, Event, LogLine

    from shunter.client import Client
    from shunter.flows.reports import Lines

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")]
Rank = Annotated[int | None, typer.Option("--rank", help="Only this rank; -1 is the set-up. Default: all, merged.")]
StreamOf = Annotated[str | None, typer.Option("--stream", help="Only stdout, stderr or setup.")]
Generation = Annotated[int | None, typer.Option("--start", metavar="N", help="Only this start of the gang.")]
Tail = Annotated[int | None, typer.Option("--tail", min=1, help="Only the last lines.")]
Search = Annotated[str | None, typer.Option("--search", metavar="TEXT", help="Only lines that hold this text.")]
Case = Annotated[bool, typer.Option("--case", help="With --search: capital letters count.")]
Download = Annotated[Path | None, typer.Option("--download", metavar="DIR", help="Fetch every file into this folder.")]

_PANEL = "What jobs report and leave"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "logs", panel=_PANEL)(logs)
    command(app, "events", panel=_PANEL)(events)
    command(app, "checkpoints", panel=_PANEL)(checkpoints)
    command(app, "artifacts", panel=_PANEL)(artifacts)


def logs(
    context: Context,
    job_id: JobId,
    follow: Follow = False,
    rank: Rank = None,
    stream: StreamOf = None,
    generation: Generation = None,
    search: Search = None,
    case: Case = False,
    tail: Tail = None,
) -> None:
    """Print a job's output."""
    from shunter.cli import output
    from shunter.flows.reports import Lines

    which = Lines(rank, stream, generation, search, case)
    with context.client() as client:
        for line in _lines(client, job_id, which, follow=follow, tail=tail):
            if context.as_json:
                output.print_json(line)
            elif context.wide:
                print(f"{output.clock(line.at)} {_origin(line, wide=True)} {line.text}", flush=follow)
            else:
                print(line.text if rank is not None else f"{_origin(line)} {line.text}", flush=follow)


def events(context: Context, job_id: JobId, follow: Follow = False) -> None:
    """Print what happened to a job."""
    from shunter.cli import output
    from shunter.display import AwayLines

    with context.client() as client:
        for event in client.follow_events(job_id, away=AwayLines()) if follow else client.events(job_id):
            if context.as_json:
                output.print_json(event)
            else:
                print(_event_line(event, wide=context.wide), flush=follow)


def checkpoints(context: Context, job_id: JobId) -> None:
    """List the checkpoints that a job can go on from, newest first."""
    from shunter.cli import output

    with context.client() as client:
        found = list(client.checkpoints(job_id))
    if context.as_json:
        output.print_json_list(found)
        return
    headings = ("STEP", "START", "SIZE", "FILES", "COMMITTED", "VALUES")
    output.print_table(headings, map(_checkpoint_row, found), empty="no checkpoints")


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
    elif context.wide:
        headings = ("SIZE", "SHA-256", "START", "STORED", "PATH")
        output.print_table(headings, map(_wide_artifact_row, found), empty="no artifacts")
    else:
        output.print_table(("SIZE", "SHA-256", "PATH"), map(_artifact_row, found), empty="no artifacts")


def _lines(client: Client, job_id: str, which: Lines, *, follow: bool, tail: int | None) -> Iterator[LogLine]:
    from shunter.display import AwayLines

    last = 0
    chosen = asdict(which)
    for line in client.logs(job_id, **chosen, tail=tail):
        last = line.line
        yield line
    if follow:
        yield from client.follow_logs(job_id, **chosen, after=last, away=AwayLines())


def _origin(line: LogLine, *, wide: bool = False) -> str:
    rank = "set-up" if line.rank < 0 else str(line.rank)
    return f"[{line.generation}.{line.node} {rank} {line.stream}]" if wide else f"[{rank}]"


def _event_line(event: Event, *, wide: bool = False) -> str:
    import json

    from shunter.cli import output
    from shunter.cli.event_words import words_of

    known = (json.dumps(event.data, ensure_ascii=False) if event.data else "") if wide else words_of(event)
    return f"{event.seq:>4}  {output.clock(event.at)}  {event.type:<22} {known}".rstrip()


def _checkpoint_row(checkpoint: Checkpoint) -> tuple[str, ...]:
    from shunter.cli import output

    values = " ".join(f"{name}={value:.4g}" for name, value in checkpoint.values.items())
    start = f"{checkpoint.generation} of {checkpoint.from_job}" if checkpoint.from_job else str(checkpoint.generation)
    size = output.in_bytes(checkpoint.size_bytes)
    return str(checkpoint.step), start, size, str(checkpoint.files), output.clock(checkpoint.committed_at), values


def _artifact_row(artifact: Artifact) -> tuple[str, ...]:
    """The path last: it is as long as it likes."""
    from shunter.cli import output

    return output.in_bytes(artifact.size_bytes), artifact.sha256, artifact.path


def _wide_artifact_row(artifact: Artifact) -> tuple[str, ...]:
    from shunter.cli import output

    *columns, path = _artifact_row(artifact)
    return *columns, str(artifact.generation), output.clock(artifact.created_at), path
