"""The inputs of a rehearsal: the same folders, with the first lines of long files of lines only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

MOST_LINES = 2000
LARGE_BYTES = 4 << 20
_LINES = frozenset({".jsonl", ".ndjson", ".txt", ".csv", ".md"})


def lay_out(folder: Path, inputs: Mapping[str, Path]) -> list[str]:
    """Make `folder/NAME` for every input; says which files were cut."""
    folder.mkdir(parents=True)
    notes: list[str] = []
    for name, origin in inputs.items():
        files = [file for file in origin.rglob("*") if file.is_file()]
        cuts = [file for file in files if file.suffix in _LINES and file.stat().st_size > LARGE_BYTES]
        if cuts:
            _copy_with_cuts(origin, folder / name, files, frozenset(cuts))
            notes += [f"input {name}: the first {MOST_LINES} lines of {file.relative_to(origin)}" for file in cuts]
        else:
            os.symlink(origin.resolve(), folder / name, target_is_directory=True)
    return notes


def _copy_with_cuts(origin: Path, target: Path, files: list[Path], cuts: frozenset[Path]) -> None:
    for file in files:
        place = target / file.relative_to(origin)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file in cuts:
            with file.open("rb") as source, place.open("wb") as out:
                out.writelines(islice(source, MOST_LINES))
        else:
            os.symlink(file.resolve(), place)
