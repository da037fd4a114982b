"""Flat pieces of tensors, in the form in which torch's checkpoints take and give them.

DeepSpeed cuts tensors as if they had one axis; a checkpoint knows rectangles. A range of a tensor's elements in memory
order is a handful of rectangles (the end of a first row, whole rows, the beginning of a last one), so each rank writes
and reads what it holds, and no tensor is ever gathered.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import torch
from torch import Tensor

Rectangle = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes along each axis."""


def rectangles(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Rectangle]:
    """Elements `start` to `stop` of a tensor of this shape, counted in memory order, as rectangles in that order."""
    if start >= stop:
        return
    if len(shape) < 2:
        yield ((start,), (stop - start,)) if shape else ((), ())
        return
    row = prod(shape[1:])
    first, last = -(-start // row), stop // row
    if start % row or first >= last:
        end = min(stop, (start // row + 1) * row)
        yield from _within(shape, start // row, start % row, end - start)
        yield from rectangles(shape, end, stop)
        return
    yield (first, *[0] * (len(shape) - 1)), (last - first, *shape[1:])
    yield from rectangles(shape, last * row, stop)


def _within(shape: tuple[int, ...], index: int, start: int, count: int) -> Iterator[Rectangle]:
    """Rectangles of a part of one row."""
    for offsets, sizes in rectangles(shape[1:], start, start + count):
        yield (index, *offsets), (1, *sizes)


class Piece(Tensor):
    """A tensor of which this rank holds elements `start` to `start + len(flat)`, in memory order.

    It is a tensor in name only, since torch's checkpoints ask for one: no operation works on it but those below, which
    savers use to take a copy. Checkpoints find its parts by the three methods with underscores.
    """

    placements = ()
    """As of a DTensor without an axis on which ranks hold the same: every rank has another part."""
    _start: int
    _flat: Tensor

    @staticmethod
    def of(shape: torch.Size, start: int, flat: Tensor) -> Piece:
        """`flat` is a view of the memory itself: what is read goes into it."""
        make: Any = Tensor._make_wrapper_subclass
        piece: Piece = make(Piece, shape, dtype=flat.dtype, device=flat.device)
        piece._start = start
        piece._flat = flat
        return piece

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub lacks the first argument
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return NotImplemented

    def detach(self) -> Piece:
        return Piece.of(self.shape, self._start, self._flat.detach())

    def clone(self, **_: Any) -> Piece:
        return Piece.of(self.shape, self._start, self._flat.clone())

    def cpu(self, memory_format: torch.memory_format = torch.preserve_format) -> Piece:
        return Piece.of(self.shape, self._start, self._flat.cpu())

    def to(self, *args: Any, **kwargs: Any) -> Piece:
        return Piece.of(self.shape, self._start, self._flat.to(*args, **kwargs))

    def __create_write_items__(self, name: str, piece: Piece) -> list[Any]:
        from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
        from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

        properties = TensorProperties(dtype=self.dtype)
        return [
            WriteItem(
                index=MetadataIndex(name, chunk.offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk=chunk, properties=properties, size=self.shape),
            )
            for chunk in self.__create_chunk_list__()
        ]

    def __create_chunk_list__(self) -> list[Any]:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        return [
            ChunkStorageMetadata(offsets=torch.Size(offsets), sizes=torch.Size(sizes))
            for offsets, sizes in self._rectangles()
        ]

    def __get_tensor_shard__(self, index: Any) -> Tensor:
        passed = 0
        for offsets, sizes in self._rectangles():
            count = prod(sizes)
            if index.offset is None or tuple(index.offset) == offsets:
                return self._flat[passed : passed + count].view(sizes)
            passed += count
        raise ValueError(f"no part of {index.fqn} begins at {index.offset} on this rank")

    def _rectangles(self) -> Iterator[Rectangle]:
        return rectangles(tuple(self.shape), self._start, self._start + self._flat.numel())
