"""The DeepSpeed file of a script, checked before its folder is sent."""

from __future__ import annotations

from pathlib import Path

from shunter_schemas.checks.deepspeed import program_of
from shunter_schemas.deepspeed.file import MOST_BYTES, file_faults
from shunter_schemas.faults import Fault
from shunter_schemas.job import JobSpec
from shunter_schemas.posted import is_local_path
from shunter_schemas.source import FolderSource
from shunter_schemas.strategies import OwnStrategy


def deepspeed_file_faults(job: JobSpec, base: Path) -> list[Fault]:
    """What is wrong with `strategy.deepspeed_file`, where it lies in a folder on this machine."""
    strategy = job.strategy
    if not isinstance(strategy, OwnStrategy) or strategy.deepspeed_file is None:
        return []
    path = _where(job, strategy.deepspeed_file, base)
    if path is None or not path.parent.is_dir():
        return []
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        return [Fault("/strategy/deepspeed_file", f"{path} cannot be read: {error.strerror}")]
    return list(file_faults(content, program_of(job, strategy.deepspeed_file)))


def _where(job: JobSpec, name: str, base: Path) -> Path | None:
    if not name.startswith("input:"):
        return base / job.source.path / name if isinstance(job.source, FolderSource) else None
    input_name, _, path = name.removeprefix("input:").partition("/")
    place = job.inputs[input_name].from_
    return base / place / path if is_local_path(place) else None
