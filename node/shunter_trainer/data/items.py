"""Samples that are made one by one, each a mapping by name: the user's own data sets, images, shards.

What is random in making one is seeded by (seed, epoch, sample), so that it too resumes exactly on any number of ranks.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from shunter_trainer.data.order import Indices
from shunter_trainer.failures import UserFault
from shunter_trainer.seeds import mix, seed_everything

Rows = Mapping[str, Any]
"""Tensors by name, one row a sample."""
Key = tuple[int, int]
"""Epoch and index of a sample."""

_MOST_THREADS = 16


class Items(ABC):
    """A finite set of samples that are fetched a step at a time, by loader processes where there are any."""

    tokens_per_sample = 0
    sample_bytes = 1 << 30  # so that no more than one step is gathered at once

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def item(self, key: Key) -> Any:
        """One sample. Seeds the process's generators by the key before it draws from them."""

    @property
    @abstractmethod
    def pointer(self) -> str:
        """The place of the document to blame for an item that does not fit."""

    def still(self) -> Items:
        """The same samples for evaluation: nothing is changed at random that we change ourselves."""
        return self

    @property
    def settled(self) -> bool:
        """Whether making one draws no random numbers and runs no code of the user, so that threads may share it."""
        return False

    def take(self, indices: Indices, epochs: Indices) -> Rows:
        """These samples, in this order."""
        keys = list(zip(epochs.tolist(), indices.tolist(), strict=True))
        if not self.settled or len(keys) == 1:
            return self.collate([self.item(key) for key in keys])
        with ThreadPoolExecutor(_threads()) as threads:
            return self.collate(list(threads.map(self.item, keys)))

    def targets(self, indices: Indices) -> Indices | None:
        """Every sample has as many targets as every other."""
        return None

    def collate(self, items: list[Any]) -> Rows:
        """Items as one batch. Raises: UserFault when they do not fit together."""
        return collate(items, self.pointer, str(self))


class Mapped(Items):
    """The user's own map-style data set."""

    def __init__(self, dataset: Any, seed: int, target: str, pointer: str = "/workload/data") -> None:
        self._dataset = dataset
        self._seed = seed
        self._target = target
        self._pointer = pointer

    def __len__(self) -> int:
        return len(self._dataset)

    def __str__(self) -> str:
        return self._target

    @property
    def pointer(self) -> str:
        return f"{self._pointer}/target"

    def item(self, key: Key) -> Any:
        epoch, index = key
        seed_everything(mix(self._seed, epoch, index))
        return self._dataset[index]


class ItemPart(Items):
    """Some of another set's samples."""

    def __init__(self, whole: Items, chosen: Indices) -> None:
        self._whole = whole
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __str__(self) -> str:
        return str(self._whole)

    @property
    def pointer(self) -> str:
        return self._whole.pointer

    def item(self, key: Key) -> Any:
        epoch, index = key
        return self._whole.item((epoch, int(self._chosen[index])))

    def still(self) -> Items:
        return ItemPart(self._whole.still(), self._chosen)

    @property
    def settled(self) -> bool:
        return self._whole.settled


def collate(items: list[Any], pointer: str, target: str) -> Rows:
    """Items as one batch of tensors.

    Raises: UserFault when an item is no mapping by name, or when their values do not fit together.
    """
    from torch.utils.data import default_collate

    if not isinstance(items[0], Mapping):
        raise UserFault(
            pointer,
            f"{target} gave an item of type {type(items[0]).__name__}; "
            "each item must be a mapping by name, since it becomes model(**batch)",
        )
    try:
        batch: Rows = default_collate(items)
    except (RuntimeError, TypeError, KeyError) as error:
        first = str(error).partition("\n")[0]
        raise UserFault(
            pointer, f"items of {target} cannot be put into one batch ({first}); give all the same names and shapes"
        ) from error
    return batch


def _threads() -> int:
    """This rank's part of the node's cores."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(_MOST_THREADS, (os.cpu_count() or 1) // ranks))
