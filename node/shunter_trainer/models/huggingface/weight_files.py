"""Pretrained weights in a local folder, read tensor by tensor."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shunter_trainer.failures import UserFault

_POINTER = "/workload/model/weights"
_SAFE = "model.safetensors"
_PICKLED = "pytorch_model.bin"
_INDEX = ".index.json"
_PIECE_BYTES = 64 << 20


class WeightFiles:
    """The tensors of a folder by name. Opening reads no values; `read` reads one tensor's."""

    def __init__(self, folder: Path) -> None:
        """Raises: UserFault when the folder holds no weights, or a file of them is missing or broken."""
        self.files = _files(folder)
        self._readers: dict[str, Any] = {}
        for file in self.files:
            reader = _SafeReader(file) if file.suffix == ".safetensors" else _PickledReader(file)
            self._readers.update(dict.fromkeys(reader.names(), reader))

    def names(self) -> list[str]:
        """All tensors, in no meaningful order."""
        return list(self._readers)

    def form(self, name: str) -> Tensor:
        """A tensor on the meta device, of the shape and type of the stored one."""
        form: Tensor = self._readers[name].form(name)
        return form

    def read(self, name: str) -> Tensor:
        """A stored tensor on the CPU."""
        tensor: Tensor = self._readers[name].read(name)
        return tensor

    def digests(self, part: int, parts: int) -> list[tuple[int, str]]:
        """Number and SHA-256 of every `parts`-th piece of the files' bytes, so that ranks can share the reading."""
        return [
            (number, _sha256(file, start))
            for number, (file, start) in enumerate(self._pieces())
            if number % parts == part
        ]

    def _pieces(self) -> Iterator[tuple[Path, int]]:
        for file in self.files:
            for start in range(0, file.stat().st_size, _PIECE_BYTES):
                yield file, start


class _SafeReader:
    def __init__(self, file: Path) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            self._file: Any = safe_open(file, framework="pt", device="cpu")
        except (OSError, SafetensorError) as error:
            raise UserFault(_POINTER, f"{file.name} cannot be read as safetensors: {error}") from error

    def names(self) -> list[str]:
        return list(self._file.keys())

    def form(self, name: str) -> Tensor:
        part = self._file.get_slice(name)
        return torch.empty(part.get_shape(), dtype=_SAFE_TYPES.get(part.get_dtype(), torch.float32), device="meta")

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self._file.get_tensor(name)
        return tensor


class _PickledReader:
    """`pytorch_model.bin`, without running anything that is pickled in it, and mapped instead of read."""

    def __init__(self, file: Path) -> None:
        try:
            self._tensors: Mapping[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # torch raises of many kinds here
            way_out = "convert the weights to safetensors (`save_pretrained` of transformers writes them)"
            raise UserFault(_POINTER, f"{file.name} cannot be read safely; {way_out}") from error

    def names(self) -> list[str]:
        return [name for name, value in self._tensors.items() if isinstance(value, Tensor)]

    def form(self, name: str) -> Tensor:
        return torch.empty_like(self._tensors[name], device="meta")

    def read(self, name: str) -> Tensor:
        return self._tensors[name]


def _files(folder: Path) -> Sequence[Path]:
    for name in (_SAFE, _PICKLED):
        if (folder / f"{name}{_INDEX}").is_file():
            return _indexed(folder, f"{name}{_INDEX}")
        if (folder / name).is_file():
            return [folder / name]
    held = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
    raise UserFault(_POINTER, f"the folder holds no {_SAFE} or {_SAFE}{_INDEX} (it holds {held})")


def _indexed(folder: Path, index: str) -> Sequence[Path]:
    try:
        named = sorted(set(json.loads((folder / index).read_bytes())["weight_map"].values()))
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise UserFault(_POINTER, f"{index} cannot be read: {error}") from error
    for name in named:
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise UserFault(_POINTER, f"{index} names {name!r}, which is not in the folder")
    return [folder / name for name in named]


def _sha256(file: Path, start: int) -> str:
    with file.open("rb") as opened:
        opened.seek(start)
        return hashlib.sha256(opened.read(_PIECE_BYTES)).hexdigest()


_SAFE_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
