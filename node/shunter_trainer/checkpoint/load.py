"""Resuming: find the checkpoint, verify it, read it into a prepared strategy of any kind and world size."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from shunter_trainer.checkpoint.manifest import MANIFEST, POSITION, verify, whole_checkpoints
from shunter_trainer.checkpoint.save import Position
from shunter_trainer.failures import CheckpointFault
from shunter_trainer.gang import Gang
from shunter_trainer.strategies.base import Stored, Strategy


def find_checkpoint(folder: Path) -> Path:
    """The checkpoint that this folder is or holds; of several the newest.

    Raises: CheckpointFault when there is none.
    """
    if (folder / MANIFEST).is_file():
        return folder
    found = whole_checkpoints(folder)
    if not found:
        raise CheckpointFault(f"SHUNTER_RESUME_DIR ({folder}) holds no whole checkpoint")
    return found[-1][1]


def load_checkpoint(folder: Path, strategy: Strategy, gang: Gang) -> Position:
    """Verify the files (each rank of a node a part of them) and take the state over.

    Raises: CheckpointFault when a file is damaged or the state belongs to another model.
    """
    verify(folder, gang.local_rank, gang.local_world_size)
    stored = contents(folder)
    state = strategy.empty_state(stored)
    _compare(state, stored, folder.name)
    read_into(state, folder)
    strategy.load(state)
    try:
        return Position(**json.loads((folder / POSITION).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointFault(f"checkpoint {folder.name}: {POSITION} cannot be read: {error}") from error


def contents(folder: Path) -> dict[str, Stored]:
    """What a checkpoint holds, by name."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader

    entries = FileSystemReader(folder).read_metadata().state_dict_metadata
    return {name: _form(entry) for name, entry in entries.items()}


def read_into(state: dict[str, Any], folder: Path) -> None:
    """Fill these entries from a checkpoint: tensors in place, others by replacing them."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    with warnings.catch_warnings():
        # Each rank reads by itself, on purpose; torch warns that this might not be meant.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load(state, storage_reader=FileSystemReader(folder), no_dist=True)


def _form(entry: Any) -> Stored:
    size = getattr(entry, "size", None)
    return None if size is None else (size, entry.properties.dtype)


def _compare(state: dict[str, Any], stored: dict[str, Stored], name: str) -> None:
    missing = [entry for entry in state if entry not in stored]
    unknown = [entry for entry in stored if entry not in state]
    if missing or unknown:
        listed = ", ".join([f"without {entry}" for entry in missing[:3]] + [f"with {entry}" for entry in unknown[:3]])
        raise CheckpointFault(f"checkpoint {name} belongs to another model or optimizer: it is {listed}")
    for entry, form in stored.items():
        if form is not None and tuple(form[0]) != tuple(state[entry].shape):
            raise CheckpointFault(
                f"checkpoint {name} belongs to another model: {entry} is {tuple(form[0])} there, "
                f"{tuple(state[entry].shape)} here"
            )
