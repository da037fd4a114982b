"""Files of the source that a document names: they have to be there before anything is sent or rented."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shunter_schemas.faults import Fault
from shunter_schemas.job import JobSpec
from shunter_schemas.nearest import did_you_mean
from shunter_schemas.script import ScriptWorkload
from shunter_schemas.source import FolderSource

_MOST_NAMES = 1000


def missing_files(job: JobSpec, base: Path) -> Iterator[Fault]:
    """Entry point and requirements that are not in the source's folder on this machine.

    Nothing where set-up commands run first on the nodes: they may make them.
    """
    if not isinstance(job.source, FolderSource) or job.environment.setup:
        return
    folder = base / job.source.path
    if not folder.is_dir():
        return  # told elsewhere
    for place, name in _named(job):
        if not (folder / name).is_file():
            yield Fault(place, f"there is no file {name} in {folder}{_like(folder / name)}")


def _named(job: JobSpec) -> Iterator[tuple[str, str]]:
    script, requirements = job.workload, job.environment.requirements_file
    if isinstance(script, ScriptWorkload) and script.entrypoint is not None and not script.module:
        yield "/workload/entrypoint", script.entrypoint
    if requirements is not None and not requirements.startswith("input:"):
        yield "/environment/requirements_file", requirements


def _like(missing: Path) -> str:
    try:
        names = [file.name for file, _ in zip(missing.parent.iterdir(), range(_MOST_NAMES), strict=False)]
    except OSError:
        return ""
    return did_you_mean(missing.name, names)
