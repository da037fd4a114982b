"""Samples: what can be counted, indexed and turned into batches. A batch is a mapping of tensors, `model(**batch)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from shunter_trainer.data.order import Indices, permute
from shunter_trainer.failures import UserFault
from shunter_trainer.seeds import mix, seed_everything

Rows = Mapping[str, Any]
"""Tensors by name, one row a sample."""

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


class TokenTable:
    """Texts packed without gaps: each row is `sequence_length` tokens, and every token but the first is a target."""

    def __init__(self, tokens: Tensor) -> None:
        self._tokens = tokens
        self.tokens_per_sample = tokens.shape[1]
        self.sample_bytes = 8 * tokens.shape[1]

    def __len__(self) -> int:
        return self._tokens.shape[0]

    def take(self, indices: Indices, epochs: Indices) -> Rows:
        ids = self._tokens[torch.from_numpy(indices)].long()
        return {"input_ids": ids, "labels": ids}

    def targets(self, indices: Indices) -> Indices | None:
        return None


class PaddedTable:
    """One text a row, cut or padded at the right; padding is no target."""

    def __init__(self, tokens: Tensor, lengths: Indices) -> None:
        self._tokens = tokens
        self._lengths = lengths
        self.tokens_per_sample = tokens.shape[1]
        self.sample_bytes = 16 * tokens.shape[1]

    def __len__(self) -> int:
        return self._tokens.shape[0]

    def take(self, indices: Indices, epochs: Indices) -> Rows:
        ids = self._tokens[torch.from_numpy(indices)].long()
        ends = torch.from_numpy(self._lengths[indices]).unsqueeze(1)
        padding = torch.arange(ids.shape[1]).unsqueeze(0) >= ends
        return {"input_ids": ids, "labels": ids.masked_fill(padding, IGNORED)}

    def targets(self, indices: Indices) -> Indices | None:
        return np.maximum(self._lengths[indices] - 1, 0)


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


class Mapped:
    """The user's own map-style data set.

    Random augmentation is seeded by (seed, epoch, sample), so that it too resumes exactly on any number of ranks.
    """

    tokens_per_sample = 0
    sample_bytes = 1 << 30  # its items are fetched a step at a time

    def __init__(self, dataset: Any, seed: int, target: str) -> None:
        self._dataset = dataset
        self._seed = seed
        self._target = target

    def __len__(self) -> int:
        return len(self._dataset)

    def take(self, indices: Indices, epochs: Indices) -> Rows:
        return self.collate([self.item(key) for key in zip(epochs.tolist(), indices.tolist(), strict=True)])

    def targets(self, indices: Indices) -> Indices | None:
        return None

    def item(self, key: tuple[int, int]) -> Any:
        """One sample, by (epoch, index)."""
        epoch, index = key
        seed_everything(mix(self._seed, epoch, index))
        return self._dataset[index]

    def collate(self, items: list[Any]) -> Rows:
        """Items as one batch."""
        return collate(items, self._target)


class Unindexed:
    """The user's own iterable: read from its beginning to its end, over and over, in its own order."""

    def __init__(self, source: Iterable[Any], target: str) -> None:
        self.source = source
        self.target = target


class Part:
    """Some of another set's samples: those behind positions `start` to `stop` of a fixed shuffle."""

    def __init__(self, whole: Samples, start: int, stop: int, seed: int) -> None:
        self._whole = whole
        self._chosen = np.sort(permute(np.arange(start, stop, dtype=np.int64), len(whole), seed, _SPLIT_KEY))
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
    """Training and validation part; at least one sample each.

    Raises: UserFault when there are fewer than two samples.
    """
    count = len(samples)
    if count < 2:
        raise UserFault("/workload/data/validation", f"{count} sample cannot be split; name validation data of its own")
    held_back = min(max(round(count * fraction), 1), count - 1)
    return Part(samples, held_back, count, seed), Part(samples, 0, held_back, seed)


def collate(items: list[Any], target: str) -> Rows:
    """Items of a user's data set as one batch of tensors.

    Raises: UserFault when an item is no mapping by name.
    """
    from torch.utils.data import default_collate

    if not isinstance(items[0], Mapping):
        raise UserFault(
            "/workload/data/target",
            f"{target} gave an item of type {type(items[0]).__name__}; "
            "each item must be a mapping by name, since it becomes model(**batch)",
        )
    batch: Rows = default_collate(items)
    return batch
