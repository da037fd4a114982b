"""Commands that take or make a job document: `submit`, `run`, `validate`, `diff`, `schema`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shunter.cli.arguments import DryRun, Settings, Source, Watch, complete_job
from shunter.cli.codes import ExitCode
from shunter.cli.command import Context, command

if TYPE_CHECKING:
    from shunter.bundle import Bundle
    from shunter.client import Client

_FORMS = "JSON (with comments) or YAML; - is standard input."

File = Annotated[Path, typer.Argument(metavar="FILE", help=f"The job document: {_FORMS}", show_default=False)]
FileOrNone = Annotated[
    Path | None, typer.Argument(metavar="FILE", help=f"The job document: {_FORMS}", show_default=False)
]
Like = Annotated[
    str | None,
    typer.Option("--like", metavar="ID", help="Take the document of this job.", autocompletion=complete_job),
]
Old = Annotated[
    str, typer.Argument(metavar="OLD", help="A file, or a job's id.", show_default=False, autocompletion=complete_job)
]
New = Annotated[
    str, typer.Argument(metavar="NEW", help="A file, or a job's id.", show_default=False, autocompletion=complete_job)
]


class Launcher(StrEnum):
    """How ranks are started."""

    TORCH = "torch"
    TORCHRUN = "torchrun"
    ACCELERATE = "accelerate"
    PLAIN = "plain"


Program = Annotated[
    list[str],
    typer.Argument(metavar="PROGRAM", help="A Python file, torchrun …, or any program, and its arguments."),
]
Gpus = Annotated[int | None, typer.Option("--gpus", "-g", min=1, help="GPUs in all, one rank each.")]
Nodes = Annotated[int | None, typer.Option("--nodes", min=1, help="Number of nodes.")]
PerNode = Annotated[int | None, typer.Option("--gpus-per-node", min=1, help="GPUs of each node.")]
Cpus = Annotated[
    int | None, typer.Option("--cpu-processes", min=1, help="Ranks on CPUs of each node, instead of GPUs.")
]
Models = Annotated[list[str] | None, typer.Option("--gpu-model", help="A GPU model that will do. Repeatable.")]
Module = Annotated[bool, typer.Option("--module", "-m", help="PROGRAM is a module, as in python -m.")]
LauncherOption = Annotated[
    Launcher | None, typer.Option("--launcher", help="Default: torch for Python, plain for other programs.")
]
Name = Annotated[str | None, typer.Option("--name", help="The job's name. Default: the program's.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "submit", panel="Jobs")(submit)
    command(app, "run", panel="Jobs", options_first=True)(run)
    command(app, "validate", panel="Documents")(validate)
    command(app, "diff", panel="Documents")(diff)
    command(app, "schema", panel="Documents")(schema)


def submit(
    context: Context,
    file: FileOrNone = None,
    like: Like = None,
    source: Source = None,
    settings: Settings = None,
    watch: Watch = False,
    dry_run: DryRun = False,
) -> int:
    """Submit a job document, or that of another job; prints the job's id."""
    from shunter.cli import output
    from shunter.document import prepare

    if (file is None) == (like is None):
        raise typer.BadParameter("give a file, or --like with a job's id")
    if dry_run and file is not None:
        document, _ = prepare(file, source=source, settings=settings or ())
        output.print_document(document)
        return ExitCode.SUCCEEDED
    with context.client() as client:
        asked: Path | dict[str, Any] = file if file is not None else client.get(str(like)).spec
        if dry_run:
            document, _ = prepare(asked, source=source, settings=settings or ())
            output.print_document(document)
            return ExitCode.SUCCEEDED
        return _submit(context, client, asked, source=source, settings=settings, watch=watch)


def run(
    context: Context,
    program: Program,
    gpus: Gpus = None,
    nodes: Nodes = None,
    gpus_per_node: PerNode = None,
    cpu_processes: Cpus = None,
    gpu_models: Models = None,
    module: Module = False,
    launcher: LauncherOption = None,
    name: Name = None,
    source: Source = None,
    settings: Settings = None,
    watch: Watch = False,
    dry_run: DryRun = False,
) -> int:
    """Run a program as it is: writes the document, sends the working directory along, and submits.

    Options stand before the program; what follows it belongs to the program.
    """
    from shunter import launching
    from shunter.cli import output
    from shunter.document import with_values

    document = launching.document_of(
        launching.Program(program, module, source, launcher.value if launcher else None),
        launching.Ranks(gpus, nodes, gpus_per_node, cpu_processes, gpu_models or ()),
        name=name,
    )
    if dry_run:
        output.print_document(with_values(document, settings or ()))
        return ExitCode.SUCCEEDED
    with context.client() as client:
        return _submit(context, client, document, source=None, settings=settings, watch=watch)


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
        else:
            lines = [in_words(fault) for fault in error.faults] if len(error.faults) > 1 else [str(error)]
            print(*lines, *([error.hint] if error.hint else []), sep="\n", file=sys.stderr)
        return ExitCode.USAGE
    if context.as_json:
        output.print_data({"valid": True, "errors": []})
    else:
        print(f"{file} is valid")
    return ExitCode.SUCCEEDED


def diff(context: Context, old: Old, new: New) -> int:
    """Show what is different between the documents of two jobs or files; exits 1 where something is."""
    from shunter.cli import output
    from shunter.comparing import differences

    found = differences(_document(context, old), _document(context, new))
    if context.as_json:
        output.print_data([one.as_data() for one in found])
    else:
        print(*found, sep="\n") if found else output.say("no differences")
    return ExitCode.FAILED if found else ExitCode.SUCCEEDED


def schema(context: Context) -> None:
    """Print the JSON Schema of the job document."""
    from importlib.resources import files

    from shunter.cli import output

    text = files("shunter_schemas").joinpath("json/job.schema.json").read_text(encoding="utf-8")
    if context.as_json:
        import json

        output.print_data(json.loads(text))
    else:
        print(text, end="")


def _submit(
    context: Context,
    client: Client,
    document: Path | dict[str, Any],
    *,
    source: Path | None,
    settings: list[str] | None,
    watch: bool,
) -> int:
    from shunter.cli import watching

    job = client.submit(document, source=source, settings=settings or (), uploading=_tell_upload)
    if watch:
        return watching.watch_new(client, job.id, as_json=context.as_json)
    watching.print_new(job, as_json=context.as_json)
    return ExitCode.SUCCEEDED


def _document(context: Context, side: str) -> dict[str, Any]:
    from shunter.document import load_document

    if not side.startswith("job_") or Path(side).exists():
        return load_document(side)
    with context.client() as client:
        return client.get(side).spec


def _tell_upload(archive: Bundle, known: bool) -> None:
    from shunter.cli import output

    size = f"{archive.files} files, {output.in_bytes(archive.size_bytes)}"
    output.say(f"{'the service has' if known else 'sending'} {archive.folder}: {size}")
