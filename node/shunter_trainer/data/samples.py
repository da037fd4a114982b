"""Samples: what can be counted, indexed and turned into batches. A batch is a mapping of tensors, `model(**batch)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import torch

from shunter_trainer.data.items import ItemPart, Items, Rows
from shunter_trainer.data.order import Indices, permute
from shunter_trainer.failures import UserFault

IGNORED = -100
"""The label that every loss leaves out."""


class Samples(Protocol):
    """A finite set of samples."""

    @property
    def sample_bytes(self) -> int:
        """About the memory of one sample in a batch; decides how many are gathered at once."""
        ...

    @property
    def tokens_per_sample(self) -> int:
        """0 where samples are not text."""
        ...

    def __len__(self) -> int: ...

    def take(self, indices: Indices, epochs: Indices) -> Rows:
        """These samples, in this order. The epoch of each matters only to data that is augmented at random."""
        ...

    def targets(self, indices: Indices) -> Indices | None:
        """How many labels of each sample count for the loss; None when the same number in every sample."""
        ...


class TensorPool:
    """Random tensors: sample `i` is row `i % rows` of a pool that fits in memory."""

    def __init__(self, pool: Rows, count: int, tokens_per_sample: int) -> None:
        self._pool = pool
        self._count = count
        self._rows = int(next(iter(pool.values())).shape[0])
        self.tokens_per_sample = tokens_per_sample
        self.sample_bytes = sum(tensor[0].numel() * tensor.element_size() for tensor in pool.values())

    def __len__(self) -> int:
        return self._count

    def take(self, indices: Indices, epochs: Indices) -> Rows:
        rows = torch.from_numpy(indices % self._rows)
        return {name: tensor[rows] for name, tensor in self._pool.items()}

    def targets(self, indices: Indices) -> Indices | None:
        return None


class Unindexed:
    """The user's own iterable: read from its beginning to its end, over and over, in its own order."""

    def __init__(self, source: Iterable[Any], target: str) -> None:
        self.source = source
        self.target = target


class Part:
    """Some of another set's samples."""

    def __init__(self, whole: Samples, chosen: Indices) -> None:
        self._whole = whole
        self._chosen = chosen
        self.sample_bytes = whole.sample_bytes
        self.tokens_per_sample = whole.tokens_per_sample

    def __len__(self) -> int:
        return len(self._chosen)

    def take(self, indices: Indices, epochs: Indices) -> Rows:
        return self._whole.take(self._chosen[indices], epochs)

    def targets(self, indices: Indices) -> Indices | None:
        return self._whole.targets(self._chosen[indices])


_SPLIT_KEY = 0x5711  # keeps the shuffle of the split apart from those of the epochs


def split(samples: Samples, fraction: float, seed: int) -> tuple[Samples, Samples]:
    """Training and validation part, by a fixed shuffle; at least one sample each.

    Raises: UserFault when there are fewer than two samples.
    """
    count = len(samples)
    if count < 2:
        raise UserFault("/workload/data/validation", f"{count} sample cannot be split; name validation data of its own")
    held_back = min(max(round(count * fraction), 1), count - 1)
    order = permute(np.arange(count, dtype=np.int64), count, seed, _SPLIT_KEY)
    held, rest = np.sort(order[:held_back]), np.sort(order[held_back:])
    if isinstance(samples, Items):
        return ItemPart(samples, rest), ItemPart(samples.still(), held)
    return Part(samples, rest), Part(samples, held)
