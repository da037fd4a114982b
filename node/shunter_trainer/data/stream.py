"""The batches of one rank, step by step, from any sample on."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from shunter_trainer.data.geometry import Geometry
from shunter_trainer.data.items import Items, Key, Rows, collate
from shunter_trainer.data.order import Indices, sample_indices
from shunter_trainer.data.samples import Samples, Unindexed
from shunter_trainer.failures import UserFault

_BLOCK_BYTES = 2 << 20
_BLOCK_STEPS = 512


@dataclass(frozen=True, slots=True)
class Micro:
    """One micro-batch."""

    batch: Mapping[str, Any]
    weight: float | None = None
    """Its share of the rank's part of the loss. None: the same as every other micro-batch of the step."""


class Stream(Protocol):
    """Endless; the sample after the last is the first of the next epoch."""

    def next_step(self) -> Sequence[Micro]:
        """The micro-batches of this rank's next step."""
        ...

    def close(self) -> None:
        """End the loader processes, if there are any."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Whose batches a stream gives, and where they go."""

    geometry: Geometry
    rank: int
    device: torch.device
    seed: int
    start: int
    """The global position of the first sample; a step takes `geometry.global_size` of them."""


def open_stream(samples: Samples | Unindexed, seat: Seat, workers: int) -> Stream:
    """The stream that fits the samples; with `workers`, items are loaded in as many processes."""
    if isinstance(samples, Unindexed):
        return _SequentialStream(samples, seat)
    if isinstance(samples, Items):
        return _ItemStream(samples, seat, workers)
    return _BlockStream(samples, seat)


class _BlockStream:
    """Gathers the samples of several steps at once, a block ahead, so that a step itself costs next to nothing."""

    def __init__(self, samples: Samples, seat: Seat) -> None:
        self._samples = samples
        self._seat = seat
        self._position = seat.start
        step_bytes = seat.geometry.rank_size * samples.sample_bytes
        self._steps = max(1, min(_BLOCK_STEPS, _BLOCK_BYTES // max(step_bytes, 1)))
        self._ready: Iterator[Sequence[Micro]] = iter(())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="data")
        self._next = self._thread.submit(self._gather)

    def next_step(self) -> Sequence[Micro]:
        for micros in self._ready:
            return micros
        rows, weights = self._next.result()
        self._next = self._thread.submit(self._gather)
        self._ready = iter(self._micros(rows, weights))
        return next(self._ready)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _gather(self) -> tuple[Rows, Sequence[float | None]]:
        """The rows of the next block and the weights of its micro-batches. Only the thread calls it."""
        count = len(self._samples)
        positions = self._own_positions()
        indices = sample_indices(positions, count, self._seat.seed)
        rows = _pinned(self._samples.take(indices, positions // count), self._seat.device)
        weights = self._weights(indices)
        self._position += self._steps * self._seat.geometry.global_size
        return rows, weights

    def _micros(self, rows: Rows, weights: Sequence[float | None]) -> list[Sequence[Micro]]:
        """A block by steps, on its way to the device."""
        size = self._seat.geometry.accumulation
        batches = _cut(move(rows, self._seat.device), self._seat.geometry.micro_size)
        micros = [Micro(batch, weight) for batch, weight in zip(batches, weights, strict=True)]
        return [micros[i : i + size] for i in range(0, len(micros), size)]

    def _own_positions(self) -> Indices:
        geometry = self._seat.geometry
        steps = self._position + np.arange(self._steps, dtype=np.int64) * geometry.global_size
        own = self._seat.rank * geometry.rank_size + np.arange(geometry.rank_size, dtype=np.int64)
        return (steps[:, None] + own[None, :]).ravel()

    def _weights(self, indices: Indices) -> Sequence[float | None]:
        """Each micro-batch's share of all targets of its step, so that every target weighs the same on any gang."""
        geometry = self._seat.geometry
        own = self._samples.targets(indices)
        if own is None:
            return [None] * (self._steps * geometry.accumulation)
        everyone = self._position + np.arange(self._steps * geometry.global_size, dtype=np.int64)
        counts = self._samples.targets(sample_indices(everyone, len(self._samples), self._seat.seed))
        assert counts is not None
        totals = np.maximum(counts.reshape(self._steps, -1).sum(axis=1), 1)
        shares = own.reshape(self._steps, geometry.accumulation, -1).sum(axis=2) * geometry.world_size
        return [float(weight) for weight in (shares / totals[:, None]).ravel()]


class _ItemStream:
    """Items that are made one by one, fetched a micro-batch at a time; by `workers` processes ahead of time."""

    def __init__(self, samples: Items, seat: Seat, workers: int) -> None:
        self._seat = seat
        workers = min(workers, os.cpu_count() or 1)
        self._batches = _loaded(samples, seat, workers) if workers else _fetched(samples, seat)

    def next_step(self) -> Sequence[Micro]:
        batches = itertools.islice(self._batches, self._seat.geometry.accumulation)
        return [Micro(move(batch, self._seat.device)) for batch in batches]

    def close(self) -> None:
        # Dropping the iterator ends its worker processes.
        self._batches = iter(())


def _fetched(samples: Items, seat: Seat) -> Iterator[Rows]:
    for keys in _keys(len(samples), seat):
        yield samples.collate([samples.item(key) for key in keys])


def _loaded(samples: Items, seat: Seat, workers: int) -> Iterator[Rows]:
    from torch.utils.data import DataLoader

    keyed = _Keyed(samples)
    loader: DataLoader[Any] = DataLoader(
        keyed,  # type: ignore[arg-type]  # torch asks for a subclass but uses __getitem__ alone
        batch_sampler=_keys(len(samples), seat),
        num_workers=workers,
        collate_fn=keyed.collate,
        pin_memory=seat.device.type == "cuda",
    )
    batches = iter(loader)
    while True:
        try:
            batch = next(batches)
        except RuntimeError as error:
            if "exited unexpectedly" not in str(error):
                raise
            raise UserFault(
                f"{samples.pointer.rpartition('/')[0]}/workers_per_gpu",
                "a loader process was killed, most likely for lack of memory; give fewer workers_per_gpu",
            ) from error
        if isinstance(batch, _Fault):
            raise UserFault(batch.pointer, batch.message)
        yield batch


class _Fault(NamedTuple):
    """A fault on its way out of a loader process, which hands errors on as text only."""

    pointer: str
    message: str


class _Keyed:
    def __init__(self, samples: Items) -> None:
        self._samples = samples

    def __getitem__(self, key: Key) -> Any:
        try:
            return self._samples.item(key)
        except UserFault as fault:
            return _Fault(fault.pointer, fault.message)

    def __len__(self) -> int:
        return len(self._samples)

    def collate(self, items: list[Any]) -> Any:
        """A batch, or the first fault among the items."""
        fault = next((item for item in items if isinstance(item, _Fault)), None)
        if fault is not None:
            return fault
        try:
            return self._samples.collate(items)
        except UserFault as found:
            return _Fault(found.pointer, found.message)


def _keys(count: int, seat: Seat) -> Iterator[list[Key]]:
    geometry = seat.geometry
    own = np.arange(geometry.rank_size, dtype=np.int64) + seat.rank * geometry.rank_size
    for start in itertools.count(seat.start, geometry.global_size):
        positions = own + start
        indices = sample_indices(positions, count, seat.seed)
        keys = list(zip((positions // count).tolist(), indices.tolist(), strict=True))
        for i in range(0, len(keys), geometry.micro_size):
            yield keys[i : i + geometry.micro_size]


class _SequentialStream:
    """Every rank reads the whole iterable and keeps its own share, so that the order is the same for any gang."""

    def __init__(self, samples: Unindexed, seat: Seat) -> None:
        self._target = samples.target
        self._seat = seat
        self._items = itertools.islice(_endless(samples), seat.start, None)

    def next_step(self) -> Sequence[Micro]:
        geometry = self._seat.geometry
        first = self._seat.rank * geometry.rank_size
        items = list(itertools.islice(self._items, geometry.global_size))
        own = range(first, first + geometry.rank_size, geometry.micro_size)
        batches = [collate(items[i : i + geometry.micro_size], "/workload/data/target", self._target) for i in own]
        return [Micro(move(batch, self._seat.device)) for batch in batches]

    def close(self) -> None:
        pass


def _endless(samples: Unindexed) -> Iterator[Any]:
    for epoch in itertools.count(1):
        count = 0
        for item in samples.source:
            yield item
            count += 1
        if count == 0:
            raise UserFault(
                "/workload/data/target",
                f"{samples.target} gave no item in epoch {epoch}; return something that can be read again and again, "
                "such as a map-style data set, not a generator",
            )


def move(value: Any, device: torch.device) -> Any:
    """A batch, or a part of one, on the device."""
    if device.type == "cpu":
        return value
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {name: move(part, device) for name, part in value.items()}
    return value


def _pinned(rows: Rows, device: torch.device) -> Rows:
    """Rows in memory that a GPU reads by itself."""
    if device.type != "cuda":
        return rows
    torch.cuda.set_device(device)  # a thread begins on the first GPU, where it would take memory
    return {name: tensor.pin_memory() for name, tensor in rows.items()}


def _cut(rows: Rows, size: int) -> list[dict[str, Tensor]]:
    """The rows of a table in groups of `size`."""
    columns = {name: tensor.split(size) for name, tensor in rows.items()}
    return [dict(zip(columns, parts, strict=True)) for parts in zip(*columns.values(), strict=True)]
