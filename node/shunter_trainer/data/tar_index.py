"""Where the samples of tar shards lie: read once a node from the headers, so that any sample can be fetched at once.

Members whose names are alike up to the first dot are one sample, as in WebDataset's layout.
"""

from __future__ import annotations

import json
import re
import tarfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shunter_trainer.data.making import Making
from shunter_trainer.data.order import Indices
from shunter_trainer.data.tables import load_array
from shunter_trainer.failures import UserFault

_FORMAT = 1
_MEMBER = re.compile(r"((?:.*/|)[^./]+)\.([^/]+)", re.DOTALL)
_BLOCK_BYTES = 512

Extents = Mapping[str, tuple[int, int]]
"""Offset and size in the shard, by extension."""


@dataclass(frozen=True, slots=True)
class TarIndex:
    """Samples by number, over all shards; arrays are mapped."""

    shards: Sequence[Path]
    shard_of: Indices
    keys: bytes
    key_ends: Indices
    offsets: Indices
    """One row a sample, one column a field."""
    sizes: Indices
    choices: Indices
    """Which of a field's extensions the sample has."""

    def __len__(self) -> int:
        return len(self.shard_of)

    def key(self, index: int) -> str:
        """What the names of a sample's members begin with."""
        start = int(self.key_ends[index - 1]) if index else 0
        return self.keys[start : int(self.key_ends[index])].decode(errors="surrogateescape")


def tar_index(shards: Sequence[Path], fields: Sequence[Sequence[str]], making: Making) -> TarIndex:
    """`fields`: for each the extensions that may stand for it.

    Raises: UserFault naming shard and sample, when a shard is broken or a sample lacks a field.
    """
    key: dict[str, object] = {
        "format": _FORMAT,
        "shards": [(str(shard.absolute()), (seen := shard.stat()).st_size, seen.st_mtime_ns) for shard in shards],
        "fields": [list(field) for field in fields],
    }
    folder = making.once(key, lambda folder: _write(folder, shards, fields, making))
    columns = [load_array(folder / f"{name}.npy") for name in ("offsets", "sizes", "choices")]
    offsets, sizes, choices = (column.reshape(-1, len(fields)) for column in columns)
    shard_of, key_ends = (load_array(folder / f"{name}.npy") for name in ("shard_of", "key_ends"))
    return TarIndex(shards, shard_of, (folder / "keys").read_bytes(), key_ends, offsets, sizes, choices)


def _write(folder: Path, shards: Sequence[Path], fields: Sequence[Sequence[str]], making: Making) -> None:
    columns = {name: array("q") for name in ("shard_of", "key_ends", "offsets", "sizes", "choices")}
    keys = bytearray()
    for number, shard in enumerate(shards):
        for key, extents in _samples(shard, f"{making.pointer}/path"):
            for field in fields:
                choice = next((i for i, name in enumerate(field) if name in extents), None)
                if choice is None:
                    raise UserFault(
                        f"{making.pointer}/fields",
                        f"{shard.name}: the sample {key!r} has no {' or '.join(field)} (it has {', '.join(extents)})",
                    )
                offset, size = extents[field[choice]]
                columns["offsets"].append(offset)
                columns["sizes"].append(size)
                columns["choices"].append(choice)
            keys += key.encode(errors="surrogateescape")
            columns["key_ends"].append(len(keys))
            columns["shard_of"].append(number)
        making.beat()
    for name, column in columns.items():
        np.save(folder / f"{name}.npy", np.array(column, dtype=np.int64))
    (folder / "keys").write_bytes(keys)
    (folder / "meta.json").write_text(json.dumps({"samples": len(columns["shard_of"])}), encoding="utf-8")


def _samples(shard: Path, pointer: str) -> Iterator[tuple[str, Extents]]:
    """The samples of a shard: what their names have in common, and where their parts lie."""
    current = ""
    extents: dict[str, tuple[int, int]] = {}
    for member in _members(shard, pointer):
        matched = _MEMBER.fullmatch(member.name)
        if matched is None or not member.isreg():
            continue
        key, extension = matched[1], matched[2].lower()
        if key != current:
            if extents:
                yield current, extents
            current, extents = key, {}
        if extension in extents:
            raise UserFault(pointer, f"{shard.name} holds {member.name!r} twice in one sample")
        extents[extension] = (member.offset_data, member.size)
    if extents:
        yield current, extents


def _members(shard: Path, pointer: str) -> Iterator[tarfile.TarInfo]:
    size = shard.stat().st_size
    try:
        with tarfile.open(shard, "r:") as tar:
            while (member := tar.next()) is not None:
                if member.offset_data + member.size > size:
                    raise UserFault(pointer, f"{shard.name} is cut off within {member.name!r}; fetch it anew")
                held: Any = tar
                held.members.clear()  # or it would keep them all
                yield member
            end = tar.offset
    except tarfile.TarError as error:
        packed = "; unpack it, since samples of a compressed tar cannot be fetched one by one" if _packed(shard) else ""
        raise UserFault(pointer, f"{shard.name} cannot be read as a tar file ({error}){packed}") from error
    except OSError as error:
        raise UserFault(pointer, f"{shard.name} cannot be read: {error.strerror}") from error
    _check_end(shard, end, pointer)


def _check_end(shard: Path, end: int, pointer: str) -> None:
    """The library takes a broken header for the end; a true end is zeros, or nothing."""
    with shard.open("rb") as content:
        content.seek(end)
        if any(content.read(_BLOCK_BYTES)):
            raise UserFault(pointer, f"{shard.name} is damaged or cut off at byte {end}; fetch it anew")


def _packed(shard: Path) -> bool:
    with shard.open("rb") as content:
        return content.read(4).startswith((b"\x1f\x8b", b"BZh", b"\xfd7zX", b"\x28\xb5\x2f\xfd"))
