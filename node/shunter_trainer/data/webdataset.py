"""`webdataset` data: samples in tar shards, fetched one by one, so that their order and resuming are exact."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np
import torch

from shunter_trainer.data.image_folder import Preparer
from shunter_trainer.data.items import Items, Key
from shunter_trainer.data.making import Made, Making
from shunter_trainer.data.model_facts import model_config, picture_config
from shunter_trainer.data.pictures import look_of, opened
from shunter_trainer.data.tar_index import TarIndex, tar_index
from shunter_trainer.failures import UserFault
from shunter_trainer.seeds import mix, seed_everything
from shunter_trainer.targets import load_target

_USUAL = {"jpg;jpeg;png;webp": "pixel_values", "cls": "labels"}
_IMAGES = frozenset(("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm", "pbm"))


def shard_samples(data: Any, making: Making) -> Made:
    """Raises: UserFault when a shard is broken, or when they hold another number of samples than the document says."""
    shards = making.files(data.path)
    fields = {name: tuple(part.lower().lstrip(".") for part in keys.split(";")) for keys, name in _fields(data)}
    index = tar_index(shards, list(fields.values()), making)
    if len(index) != data.samples:
        raise UserFault(
            f"{making.pointer}/samples",
            f"the {len(shards)} shards hold {len(index)} samples and not {data.samples}; give that number",
        )
    config, preparation = model_config(making.workload, making.places), picture_config(making.workload, making.places)
    preparer = Preparer(look_of(data.image_size, config, preparation), None, not making.evaluates)
    transform = load_target(data.transform, f"{making.pointer}/transform") if data.transform else None
    return Made(Shards(index, fields, preparer, transform, making))


class Shards(Items):
    """Samples by their place in the shards."""

    def __init__(
        self,
        index: TarIndex,
        fields: Mapping[str, tuple[str, ...]],
        preparer: Preparer,
        transform: Callable[..., Any] | None,
        making: Making,
    ) -> None:
        """`fields`: extensions by the name in the batch, in the order of the index."""
        self._index = index
        self._fields = fields
        self._preparer = preparer
        self._transform = transform
        self._making = making

    def __len__(self) -> int:
        return len(self._index)

    def __str__(self) -> str:
        return "the shards" if self._transform is None else "the transform"

    @property
    def pointer(self) -> str:
        return f"{self._making.pointer}/{'fields' if self._transform is None else 'transform'}"

    def item(self, key: Key) -> Any:
        epoch, index = key
        if not self.settled:
            seed_everything(mix(self._making.workload.seed, epoch, index))
        sample = {}
        for column, (name, extensions) in enumerate(self._fields.items()):
            extension = extensions[int(self._index.choices[index, column])]
            sample[name] = self._decoded(self._content(index, column), extension, index)
        return sample if self._transform is None else self._transform(sample)

    def still(self) -> Items:
        other = copy(self)
        other._preparer = self._preparer.still()
        return other

    @property
    def settled(self) -> bool:
        return self._transform is None and self._preparer.settled

    def _content(self, index: int, column: int) -> bytes:
        shard = self._index.shards[int(self._index.shard_of[index])]
        offset, size = int(self._index.offsets[index, column]), int(self._index.sizes[index, column])
        try:
            with shard.open("rb", buffering=0) as file:
                content = os.pread(file.fileno(), size, offset)
        except OSError as error:
            raise UserFault(f"{self._making.pointer}/path", f"{shard.name} cannot be read: {error.strerror}") from error
        if len(content) != size:
            raise UserFault(f"{self._making.pointer}/path", f"{shard.name} became shorter while it was read")
        return content

    def _decoded(self, content: bytes, extension: str, index: int) -> Any:
        shard = self._index.shards[int(self._index.shard_of[index])]
        where = f"{shard.name}: {self._index.key(index)}.{extension}"
        kind = extension.rpartition(".")[2]
        if kind in _IMAGES:
            mode = self._preparer.look.mode
            image = opened(io.BytesIO(content), mode, where, f"{self._making.pointer}/path")
            return self._preparer(image) if self._transform is None else image
        decode = _DECODERS.get(kind)
        if decode is None:
            return content
        try:
            return decode(content)
        except Exception as error:  # broken content raises nearly anything
            raise UserFault(f"{self._making.pointer}/path", f"{where} cannot be read ({error}); mend it") from error


def _fields(data: Any) -> list[tuple[str, str]]:
    return list((data.fields or _USUAL).items())


def _array(content: bytes) -> torch.Tensor:
    return torch.from_numpy(np.load(io.BytesIO(content), allow_pickle=False))


def _tensor(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "cls": int,
    "id": int,
    "index": int,
    "json": json.loads,
    "npy": _array,
    "pt": _tensor,
    "pth": _tensor,
    "text": bytes.decode,
    "txt": bytes.decode,
}
"""Anything else is handed over as bytes."""
