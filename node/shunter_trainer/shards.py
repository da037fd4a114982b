"""Safetensors files of bounded size, written while the weights come by: what `transformers` calls a sharded checkpoint.

Up to the bound it is one file, `model.safetensors`; above it `model-00001-of-00003.safetensors` and so on, with
`model.safetensors.index.json`, which names the file of each tensor. No more than one file's tensors are in memory.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from torch import Tensor


class ShardWriter:
    """Writes `STEM.safetensors` or its parts into a folder. Nothing has its final name before `close`."""

    def __init__(self, folder: Path, stem: str, shard_bytes: int) -> None:
        self._folder = folder
        self._stem = stem
        self._limit = shard_bytes
        self._open: dict[str, Tensor] = {}
        self._open_bytes = self._total_bytes = 0
        self._parts: list[tuple[Path, list[str]]] = []

    def add(self, name: str, value: Tensor) -> None:
        """The next tensor."""
        size = value.numel() * value.element_size()
        if self._open and self._open_bytes + size > self._limit:
            self._write()
        value = value.detach().contiguous()
        if not _is_whole(value) or any(value.data_ptr() == other.data_ptr() for other in self._open.values()):
            value = value.clone()  # the format has no shared memory
        self._open[name] = value
        self._open_bytes += size
        self._total_bytes += size

    def close(self) -> list[Path]:
        """Give all files their names; those of an export before are replaced."""
        if self._open or not self._parts:
            self._write()
        for old in (*self._folder.glob(f"{self._stem}-*-of-*.safetensors"), *self._folder.glob(f"{self._stem}.saf*")):
            old.unlink()
        if len(self._parts) == 1:
            return [_renamed(self._parts[0][0], self._folder / f"{self._stem}.safetensors")]
        count = len(self._parts)
        names = [f"{self._stem}-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
        files = [_renamed(part, self._folder / name) for (part, _), name in zip(self._parts, names, strict=True)]
        held = zip(names, (tensors for _, tensors in self._parts), strict=True)
        index = {
            "metadata": {"total_size": self._total_bytes},
            "weight_map": {tensor: name for name, tensors in held for tensor in tensors},
        }
        path = self._folder / f"{self._stem}.safetensors.index.json"
        path.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        return [*files, path]

    def _write(self) -> None:
        from safetensors.torch import save_file

        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / f".{self._stem}-{len(self._parts) + 1:05d}.part"
        save_file(self._open, part, metadata={"format": "pt"})
        self._parts.append((part, list(self._open)))
        self._open, self._open_bytes = {}, 0


def _is_whole(value: Tensor) -> bool:
    return value.untyped_storage().nbytes() == value.numel() * value.element_size()


def _renamed(part: Path, final: Path) -> Path:
    os.replace(part, final)
    return final
