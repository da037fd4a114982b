"""Commands that take a job document: `submit`, `validate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shunter.cli.codes import ExitCode
from shunter.cli.command import Context, command

if TYPE_CHECKING:
    from shunter.bundle import Bundle

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="The job document: JSON, or YAML with PyYAML; - is standard input.", show_default=False
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change the document, e.g. workload.batch.global_size=64. Repeatable."
    ),
]
Source = Annotated[
    Path | None, typer.Option("--source", metavar="DIR", help="Send this folder as the document's source.")
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Follow the job to its end; exit by how it ended.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "submit", panel="Jobs")(submit)
    command(app, "validate", panel="Jobs")(validate)


def submit(context: Context, file: File, source: Source = None, settings: Settings = None, watch: Watch = False) -> int:
    """Submit a job document; prints the job's id."""
    from shunter.cli import output, watching

    with context.client() as client:
        job = client.submit(file, source=source, settings=settings or (), uploading=_tell_upload)
        if watch:
            output.say(job.id)
            return watching.watch(client, job.id, as_json=context.as_json)
    if context.as_json:
        output.print_json(job)
    else:
        print(job.id)
        output.say(f"follow it with: shunter watch {job.id}")
    return ExitCode.SUCCEEDED


def validate(context: Context, file: File, source: Source = None, settings: Settings = None) -> int:
    """Check a job document without a service, with the service's own rules and words."""
    from shunter.checking import check
    from shunter.cli import output
    from shunter.document import prepare
    from shunter.errors import InvalidDocument, in_words

    try:
        document, base = prepare(file, source=source, settings=settings or ())
        check(document, base)
    except InvalidDocument as error:
        faults = [{"pointer": fault.pointer, "detail": fault.detail} for fault in error.faults]
        if context.as_json:
            output.print_data({"valid": False, "errors": faults or [{"pointer": "", "detail": str(error)}]})
        for line in [] if context.as_json else [in_words(fault) for fault in error.faults] or [str(error)]:
            print(line, file=sys.stderr)
        return ExitCode.USAGE
    if context.as_json:
        output.print_data({"valid": True, "errors": []})
    else:
        print(f"{file} is valid")
    return ExitCode.SUCCEEDED


def _tell_upload(archive: Bundle, known: bool) -> None:
    from shunter.cli import output

    size = f"{archive.files} files, {output.in_bytes(archive.size_bytes)}"
    output.say(f"{'the service has' if known else 'sending'} {archive.folder}: {size}")
