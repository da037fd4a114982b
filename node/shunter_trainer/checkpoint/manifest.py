"""The folder of a checkpoint: how it becomes whole in one instant, and how that is checked later.

`step-00000100/` holds the files of torch.distributed.checkpoint, `trainer.json` (where the training stands), and,
written last, `manifest.json`: `{"format": "shunter-checkpoint/1", "step", "values", "files"}`, the files with `path`,
`size` and `sha256` over all but itself. Everything is written into a `.tmp-…` folder first; the rename is what makes a
checkpoint. On a gang of several nodes each node has such a folder with its own ranks' files; the manifest is the same
on all and names the files of all, so that the parts laid into one folder are the checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shunter_trainer.failures import CheckpointFault

FORMAT = "shunter-checkpoint/1"
MANIFEST = "manifest.json"
POSITION = "trainer.json"
TEMPORARY = ".tmp-"

_STEP = re.compile(r"step-(\d{8,})")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a checkpoint by its path in the folder."""

    path: str
    size: int
    sha256: str


def step_folder(root: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return root / f"step-{step:08d}"


def describe(folder: Path, paths: Iterable[str]) -> list[FileEntry]:
    """Sizes and hashes of files that are complete."""
    return [FileEntry(path, (folder / path).stat().st_size, _sha256(folder / path)) for path in sorted(paths)]


def commit(temporary: Path, root: Path, step: int, values: Mapping[str, float], files: Iterable[FileEntry]) -> Path:
    """Write the manifest and rename. All other files must be on disk already (fsync)."""
    entries = [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in files]
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    write_durably(
        temporary / MANIFEST,
        json.dumps({"format": FORMAT, "step": step, "values": finite, "files": entries}, indent=1),
    )
    sync_folder(temporary)
    final = step_folder(root, step)
    if final.exists():  # left by an earlier generation that was ahead of the checkpoint we resumed from
        discard(final)
    temporary.rename(final)
    sync_folder(root)
    return final


def whole_checkpoints(root: Path) -> list[tuple[int, Path]]:
    """Steps and folders of what has a manifest, oldest first."""
    if not root.is_dir():
        return []
    matches = ((_STEP.fullmatch(entry.name), entry) for entry in root.iterdir())
    return sorted((int(match[1]), entry) for match, entry in matches if match and (entry / MANIFEST).is_file())


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """Raises: CheckpointFault when it is missing or of another format."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointFault(f"checkpoint {folder.name} has no readable manifest: {error}") from error
    if manifest.get("format") != FORMAT:
        raise CheckpointFault(f"checkpoint {folder.name} has format {manifest.get('format')!r}, not {FORMAT!r}")
    return manifest


def verify(folder: Path, part: int = 0, parts: int = 1) -> None:
    """Check files against the manifest: all sizes, and the hashes of every `parts`-th file (ranks share the reading).

    Raises: CheckpointFault naming the first file that differs.
    """
    for number, entry in enumerate(read_manifest(folder)["files"]):
        file = folder / entry["path"]
        size = file.stat().st_size if file.is_file() else None
        if size != entry["size"]:
            found = "is missing" if size is None else f"has {size} bytes"
            raise CheckpointFault(f"checkpoint {folder.name}: {entry['path']} {found}, not {entry['size']} bytes")
        if number % parts == part and _sha256(file) != entry["sha256"]:
            raise CheckpointFault(f"checkpoint {folder.name}: {entry['path']} was changed after it was written")


def discard(folder: Path) -> None:
    """Delete a checkpoint so that it is never seen half deleted."""
    doomed = folder.with_name(f"{TEMPORARY}old-{folder.name}-{os.getpid()}")
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep(root: Path) -> None:
    """Make the folder and delete what an earlier process left unfinished in it."""
    root.mkdir(parents=True, exist_ok=True)
    for left_over in root.glob(f"{TEMPORARY}*"):
        shutil.rmtree(left_over, ignore_errors=True)


def write_durably(path: Path, text: str) -> None:
    """Write a file and wait until it is on disk."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the folder's entries are on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
