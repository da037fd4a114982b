"""`rehearse`: play a document through on this machine before anything is rented. The trainer does it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shunter.cli.arguments import Settings, Source
from shunter.cli.command import Context, command
from shunter.cli.documents import File

Narrow = Annotated[bool, typer.Option("--narrow", help="Cut the model's widths too, for models with wide layers.")]
Keep = Annotated[
    Path | None,
    typer.Option("--keep", metavar="FOLDER", help="Keep logs, checkpoints and exports in this new folder."),
]

_NEEDS: Final = ("torch", "numpy", "safetensors")


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "rehearse", panel="Documents")(rehearse)


def rehearse(
    context: Context,
    file: File,
    source: Source = None,
    settings: Settings = None,
    narrow: Narrow = False,
    keep: Keep = None,
) -> int:
    """Play a training through on two processes of this machine: train, save, be killed, resume, export.

    The model is cut to two layers and the data to little; strategy, precision, adapter and code are the document's.
    Exits with 0 when everything was proven, and tells what could not be rehearsed here.
    """
    from shunter.checking import check
    from shunter.cli import output
    from shunter.document import prepare
    from shunter.errors import ShunterError

    document, base = prepare(file, source=source, settings=settings or ())
    check(document, base)
    if lacking := [package for package in _NEEDS if find_spec(package) is None]:
        raise ShunterError(f"`shunter rehearse` needs {', '.join(lacking)}", hint="pip install 'shunter[node]'")
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise ShunterError(f"{keep} is there already and not empty", hint="name a new folder")
    if not context.as_json:
        output.say(f"rehearsing {file} on two processes of this machine")
    with tempfile.TemporaryDirectory(prefix="shunter-rehearse-") as folder:
        told = Path(folder) / "document.json"
        told.write_text(json.dumps(_with_absolute_folders(document, base)), encoding="utf-8")
        options = [*(["--narrow"] if narrow else []), *(["--keep", str(keep.absolute())] if keep else [])]
        options += ["--json"] if context.as_json else []
        command_line = [sys.executable, "-m", "shunter_trainer.rehearsal", "--document", str(told), *options]
        return subprocess.run(command_line, check=False).returncode


def _with_absolute_folders(document: dict[str, Any], base: Path) -> dict[str, Any]:
    """So that the document can be read from anywhere."""
    from shunter.document import folders

    absolute: dict[str, Any] = json.loads(json.dumps(document))
    for folder in folders(document, base):
        path = str(folder.path.absolute())
        if folder.place == "/source":
            absolute["source"]["path"] = path
        else:
            absolute["inputs"][folder.place.removeprefix("/inputs/")]["from"] = path
    return absolute
