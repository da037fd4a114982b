"""Hugging Face data sets in a folder: what `save_to_disk` wrote, or the files of a data set's repository."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shunter_trainer.data.making import Making
from shunter_trainer.data.packages import package
from shunter_trainer.data.records import Record, named
from shunter_trainer.failures import UserFault

_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".jsonl.gz")
_SPLITS = ("train", "training", "test", "testing", "validation", "valid", "val", "dev", "eval", "evaluation")
_BATCH_ROWS = 1024


@dataclass(frozen=True, slots=True)
class SavedDataSet:
    """One split of what `save_to_disk` wrote."""

    folder: Path
    files: list[Path]
    classes: tuple[str, ...] | None
    """Names of the classes of `label`, where the data set has them."""
    pointer: str

    def records(self, columns: list[str]) -> Iterator[Record]:
        """Its rows, with these columns of them as far as it has them."""
        datasets = package("datasets", "datasets", f"{self.pointer}/kind")
        try:
            found = datasets.load_from_disk(str(self.folder))
        except Exception as error:  # the library raises whatever a broken file leads to
            raise UserFault(f"{self.pointer}/name", f"{self.folder.name}/ cannot be read: {error}") from error
        there = [name for name in columns if name in found.column_names]
        if columns[0] not in there:
            held = named(dict.fromkeys(found.column_names))
            raise UserFault(f"{self.pointer}/field", f"the data set has no column {columns[0]!r} (it has {held})")
        number = 0
        for batch in found.select_columns(there).iter(_BATCH_ROWS):
            for values in zip(*(batch[name] for name in there), strict=True):
                number += 1
                yield Record(dict(zip(there, values, strict=True)), f"{self.folder.name}, row {number}")


def saved_data_set(data: Any, making: Making) -> SavedDataSet | None:
    """The split that the document names, when its folder is one of `save_to_disk`.

    Raises: UserFault when there is no such folder or split.
    """
    folder = _folder(data, making)
    if (folder / "dataset_dict.json").is_file():
        splits = _json(folder / "dataset_dict.json").get("splits", [])
        if data.split not in splits:
            raise UserFault(
                f"{making.pointer}/split", f"there is no split {data.split!r} (there is {', '.join(map(str, splits))})"
            )
        folder = folder / data.split
    if not (folder / "state.json").is_file():
        return None
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return SavedDataSet(folder, files, _classes(folder, data.label), making.pointer)


def split_files(data: Any, making: Making) -> list[Path]:
    """The parquet or JSON files of a split, by the names that the hub itself goes by; without such names, all files.

    Raises: UserFault when there are none.
    """
    folder = _folder(data, making)
    pointer = f"{making.pointer}/name"
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name.endswith(_SUFFIXES)]
    files = [file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts)]
    if not files:
        held = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
        raise UserFault(
            pointer, f"{data.name!r} is no saved data set and has no parquet or JSON-lines files (it holds {held})"
        )
    by_split: dict[str | None, list[Path]] = {}
    for file in files:
        by_split.setdefault(_split_of(file.relative_to(folder)), []).append(file)
    if data.split in by_split:
        return by_split[data.split]
    if set(by_split) == {None} and data.split == "train":
        return files
    there = ", ".join(sorted(split for split in by_split if split)) or "only files of no named split"
    raise UserFault(f"{making.pointer}/split", f"there is no split {data.split!r} ({there})")


def _folder(data: Any, making: Making) -> Path:
    folder = making.places.resolve(data.name)
    if folder.is_dir():
        return folder
    raise UserFault(
        f"{making.pointer}/name",
        f"there is no folder {data.name!r}; nodes do not reach the hub: download the data set, "
        "give its folder as an input, and name it `input:NAME`",
    )


def _split_of(file: Path) -> str | None:
    """`data/train-00000-of-00002.parquet`, `train.jsonl` and `train/a.parquet` are of the split `train`."""
    for part in reversed(file.parts):
        words = re.split(r"[-._ ]", part.lower())
        if words[0] in _SPLITS:
            return words[0]
    return None


def _classes(folder: Path, label: str | None) -> tuple[str, ...] | None:
    features = _json(folder / "dataset_info.json").get("features") or {}
    names = (features.get(label) or {}).get("names") if label else None
    return tuple(map(str, names)) if isinstance(names, list) else None


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
