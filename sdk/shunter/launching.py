"""A job document from a command line: `shunter run --gpus 8 train.py --lr 3e-4`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shunter.errors import ShunterError
from shunter.importing.commands import is_launch, take_command
from shunter.importing.notes import Imported, Kind
from shunter.importing.sources import finished


@dataclass(frozen=True, slots=True)
class Ranks:
    """How many ranks, and on what."""

    gpus: int | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    cpu_processes: int | None = None
    gpu_models: Sequence[str] = ()

    def resources(self) -> dict[str, Any]:
        """As the document says it; what is not given is left out."""
        given = {
            "gpus": self.gpus,
            "nodes": self.nodes,
            "gpus_per_node": self.gpus_per_node,
            "cpu_processes": self.cpu_processes,
            "gpu_models": list(self.gpu_models),
        }
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True, slots=True)
class Program:
    """What to run: a Python file, a module, or any program; from which folder, and started how."""

    argv: Sequence[str]
    module: bool = False
    source: Path | None = None
    """None: the working directory."""
    launcher: str | None = None


def document_of(program: Program, ranks: Ranks, *, name: str | None = None) -> dict[str, Any]:
    """The document that runs a program. Its relative paths lie in the source folder.

    Raises:
        ShunterError: there is no such program, or it is not said how many ranks there are.
    """
    source = (program.source or Path.cwd()).resolve()
    if source in (Path.home().resolve(), Path("/")):
        raise ShunterError(f"{source} would be sent whole", hint="run it in the program's folder, or give --source DIR")
    found = Imported()
    found.put("source", {"kind": "folder", "path": str(source)})
    if not program.module and is_launch(program.argv):
        take_command(found, program.argv)
    else:
        found.put("workload", _workload(program, source))
    if resources := ranks.resources():
        found.put("resources", resources)
    if found.get("resources") is None or (not resources and _only_assumed(found)):
        raise ShunterError("it is not said how many ranks there are", hint="give --gpus N, or --cpu-processes N")
    if program.launcher:
        found.put("workload.launcher", program.launcher)
    if name:
        found.put("name", name)
    _name_from_source(found, source)
    return finished(found).document


def _workload(program: Program, source: Path) -> dict[str, Any]:
    first, *rest = program.argv
    arguments = {"arguments": rest} if rest else {}
    if program.module:
        return {"kind": "script", "entrypoint": first, "module": True, **arguments}
    if first.endswith(".py"):
        return {"kind": "script", "entrypoint": _inside(first, source), **arguments}
    return {"kind": "script", "command": list(program.argv), "launcher": "plain"}


def _inside(path: str, source: Path) -> str:
    """A file as the source folder names it."""
    file = Path(path).resolve() if Path(path).exists() else source / path
    if not file.is_file():
        raise ShunterError(f"{path}: there is no such file")
    if not file.is_relative_to(source):
        raise ShunterError(f"{path} lies outside of {source}, which is sent", hint="give --source DIR")
    return file.relative_to(source).as_posix()


def _name_from_source(found: Imported, source: Path) -> None:
    """The file that a launcher's own command line names, as the source folder names it."""
    entrypoint = found.get("workload.entrypoint")
    if entrypoint and not found.get("workload.module"):
        found.put("workload.entrypoint", _inside(entrypoint, source))


def _only_assumed(found: Imported) -> bool:
    return any(note.kind is Kind.ASSUMED for note in found.notes)
