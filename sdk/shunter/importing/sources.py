"""Finding out what a file or a command line is, and making a whole document of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shunter_schemas.faults import DocumentError

from shunter.errors import ShunterError, in_words
from shunter.importing.accelerate import take_config
from shunter.importing.commands import is_launch, take_command
from shunter.importing.notes import Imported
from shunter.importing.sbatch import is_batch_script, take_batch_script
from shunter.importing.shell import take_apart, take_script
from shunter.importing.skypilot import FIELDS as SKYPILOT_FIELDS
from shunter.importing.skypilot import take_task
from shunter.reading import read_yaml

_ACCELERATE_FIELDS: Final = ("distributed_type", "compute_environment", "num_processes", "fsdp_config")
_WHAT: Final = "a SkyPilot task, an accelerate configuration, a command line (torchrun …), or a Slurm batch script"


def import_from(origin: str, entrypoint: str = "train.py") -> Imported:
    """A document from a file of another tool, or from a command line.

    Args:
        entrypoint: the program, where the origin names none.

    Raises:
        ShunterError: it is nothing that can be imported; the message says why.
    """
    found = Imported()
    path = Path(origin)
    if path.is_file():
        _take_file(found, path, path.read_text(encoding="utf-8", errors="replace"), entrypoint)
    elif is_launch(words := _words(origin)):
        take_command(found, words)
    else:
        raise ShunterError(f"{origin!r} is neither a file nor a command line that is known here", hint=f"give {_WHAT}")
    return finished(found, path.stem if path.is_file() else "")


def kind_of(document: Mapping[str, Any]) -> str | None:
    """Whose file with named settings this is, with its article; None where nobody's that is known here."""
    if any(field in document for field in _ACCELERATE_FIELDS):
        return "an accelerate configuration"
    if "run" in document and document.keys() & SKYPILOT_FIELDS:
        return "a SkyPilot task"
    return None


def finished(found: Imported, name: str = "") -> Imported:
    """The document with what every document needs, in the order in which people read it."""
    program = str(found.get("workload.entrypoint") or (found.get("workload.command") or [name])[-1])
    if program.startswith("/"):
        found.refused(program, "a path of the old machine; give it relative to `source`")
    named = _name(name or Path(program).name.removesuffix(".py").rpartition(".")[2])
    found.assumed("name", "name", named, f"{named}; none is given")
    found.assumed("source", "source", {"kind": "folder", "path": "."}, "the folder of the document")
    ordered = {"version": "1"}
    for key in ("name", "labels", "source", "inputs", "workload", "strategy", "resources", "limits", "recovery"):
        if key in found.document:
            ordered[key] = found.document.pop(key)
    found.document = {**ordered, **found.document}
    return found


def _take_file(found: Imported, path: Path, text: str, entrypoint: str) -> None:
    if is_batch_script(text):
        take_batch_script(found, text)
    elif path.suffix.lower() in (".yaml", ".yml", ".json"):
        _take_yaml(found, path, text, entrypoint)
    elif (script := take_apart(text, {})) is not None:
        take_script(found, script)
    else:
        raise ShunterError(f"{path} is none of what can be imported", hint=f"give {_WHAT}")


def _take_yaml(found: Imported, path: Path, text: str, entrypoint: str) -> None:
    try:
        value: Any = read_yaml(text.encode())
    except DocumentError as error:
        several = "another document" in str(error)
        hint = "a pipeline of several tasks: import each as a file of its own" if several else ""
        raise ShunterError(f"{path}: {in_words(error.faults[0])}", hint=hint) from error
    if not isinstance(value, dict):
        raise ShunterError(f"{path} holds no settings", hint=f"give {_WHAT}")
    kind = kind_of(value)
    if kind == "an accelerate configuration":
        take_config(found, value)
        workload = {"kind": "script", "entrypoint": entrypoint}
        found.assumed("the program", "workload", workload, "the file names none; set workload.entrypoint")
    elif kind is not None:
        take_task(found, value)
    else:
        raise ShunterError(f"{path} is none of what can be imported", hint=f"give {_WHAT}")


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError:
        return []


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:63].strip("._-") or "job"
