"""Which checkpoints a node keeps."""

from __future__ import annotations

from pathlib import Path

from shunter_schemas.oversight import is_better

from shunter_trainer.checkpoint.manifest import discard, read_manifest, whole_checkpoints


def prune(root: Path, newest_step: int, keep: int, best_by: str | None) -> None:
    """Delete all but the `keep` newest up to `newest_step`, which is whole, and the one with the best `best_by`.

    Later steps, left by an earlier generation, stay until this one overwrites them.
    """
    past = [(step, folder) for step, folder in whole_checkpoints(root) if step <= newest_step]
    best = _best([folder for _, folder in past], best_by)
    for _, folder in past[:-keep]:
        if folder != best:
            discard(folder)


def _best(folders: list[Path], value_name: str | None) -> Path | None:
    if value_name is None:
        return None
    values = {folder: read_manifest(folder)["values"].get(value_name) for folder in folders}
    best: Path | None = None
    for folder, value in values.items():
        if value is not None and (best is None or is_better(value_name, value, values[best])):
            best = folder
    return best
