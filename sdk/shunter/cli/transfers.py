"""How far a download is: a bar for each file on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID
    from shunter_schemas.api import Artifact

    from shunter.flows.files import Progress


@contextmanager
def shown() -> Iterator[Progress | None]:
    """What to give to a download as its `progress`."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def tell(artifact: Artifact, have_bytes: int) -> None:
            if artifact.path not in tasks:
                tasks[artifact.path] = bars.add_task(artifact.path, total=artifact.size_bytes)
            bars.update(tasks[artifact.path], completed=have_bytes)

        yield tell
