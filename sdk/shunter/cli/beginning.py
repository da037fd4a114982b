"""`init`: a commented document to start from, also out of another tool's file."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from shunter.cli.command import Context, command

if TYPE_CHECKING:
    from shunter.importing import Imported


class Template(StrEnum):
    """What the document is about."""

    SCRIPT = "script"
    TRAINING = "training"


Target = Annotated[Path, typer.Argument(metavar="FILE", help="What to write: .yaml, .json or .jsonc.")]
Kind = Annotated[
    Template, typer.Option("--kind", help="script: a program of yours. training: from the document alone.")
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="ORIGIN",
        help="A SkyPilot task, an accelerate configuration, a Slurm batch script (files), or a command line in quotes "
        "(torchrun …, accelerate launch …, python …).",
    ),
]
Entrypoint = Annotated[str, typer.Option("--entrypoint", help="The program, where nothing else names one.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Write over files that are there.")]

_JSON: Final = (".json", ".jsonc", ".json5")
_YAML: Final = (".yaml", ".yml")


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "init", panel="Documents")(init)


def init(
    context: Context,
    file: Target = Path("job.yaml"),
    kind: Kind = Template.SCRIPT,
    origin: From = None,
    entrypoint: Entrypoint = "train.py",
    force: Force = False,
) -> None:
    """Write a commented document to start from, also out of another tool's file or command line."""
    from shunter.cli import output
    from shunter.starting import starting_document
    from shunter.writing import Style, commented

    _check_suffix(file)
    imported = _import(origin, entrypoint) if origin is not None else None
    document = imported.document if imported else starting_document(kind.value, entrypoint)
    style = Style.JSON if file.suffix.lower() in _JSON else Style.YAML
    head = ["Submit it: shunter submit " + str(file), *([f"Made from {origin}."] if origin else [])]
    text = commented(document, style, schema_url=_schema_url(context), head=head)
    files = {file: text, **{file.with_name(name): body for name, body in (imported.files if imported else {}).items()}}
    _write(files, force=force)
    notes = imported.notes if imported else []
    if context.as_json:
        parts = [{"kind": str(note.kind), "part": note.part, "why": note.why} for note in notes]
        output.print_data({"files": [str(path) for path in files], "document": document, "notes": parts})
        return
    for note in notes:
        output.say(f"  {note}")
    print("\n".join(str(path) for path in files))
    left = _left_to_mend(document, file) if imported else []
    for words in left:
        output.say(f"  to mend before it can run: {words}")
    output.say(f"check it: shunter validate {file}" + ("" if left else f"   submit it: shunter submit {file}"))


def _check_suffix(file: Path) -> None:
    """A document is read by its suffix: under another one than these YAML would be taken for JSON."""
    if file.suffix.lower() not in (*_JSON, *_YAML):
        raise typer.BadParameter(f"{file} is to be .yaml, .json or .jsonc", param_hint="FILE")


def _left_to_mend(document: Mapping[str, Any], file: Path) -> list[str]:
    """What still speaks against the document, as the service would say it."""
    from shunter.checking import check
    from shunter.errors import InvalidDocument, in_words

    try:
        check(document, file.parent)
    except InvalidDocument as error:
        return [in_words(fault) for fault in error.faults]
    return []


def _import(origin: str, entrypoint: str) -> Imported:
    from shunter.importing import import_from

    return import_from(origin, entrypoint)


def _write(files: dict[Path, str], *, force: bool) -> None:
    from shunter.errors import ShunterError

    there = [str(path) for path in files if path.exists()]
    if there and not force:
        raise ShunterError(f"{', '.join(there)} exists already", hint="--force writes over it")
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


def _schema_url(context: Context) -> str:
    """The schema at the service where there is one, else the file of this installation."""
    from importlib.resources import files

    from shunter.connection import find_connection
    from shunter.errors import NotConfigured

    try:
        return f"{find_connection(context.url, context.api_key, context.data_dir).url}/v1/schemas/job.json"
    except NotConfigured:
        return Path(str(files("shunter_schemas").joinpath("json/job.schema.json"))).as_uri()
