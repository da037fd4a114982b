"""Tables of tokens on the node's disk: written once by one rank, mapped by all, read as samples.

A folder holds `tokens.bin` (ids of all texts on end, in the smallest type that fits), `ends.npy` (where each ends),
and, by need, `targets.bin` (one byte a token: whether it counts for the loss) and `labels.npy` (a class a text).
`meta.json` says the rest.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from shunter_trainer.data.items import Rows
from shunter_trainer.data.order import Indices
from shunter_trainer.data.samples import IGNORED

Ids = NDArray[Any]
"""Token ids, one axis."""

_SMALL_BYTES = 1 << 20


def id_type(vocab: int) -> np.dtype[Any]:
    """The smallest type that holds ids below `vocab`."""
    smallest = np.uint8 if vocab <= 1 << 8 else np.uint16 if vocab <= 1 << 16 else np.uint32
    return np.dtype(smallest)


def load_array(file: Path) -> Indices:
    """An array that was saved by one rank, mapped where that is worth it."""
    # Small arrays are not worth a mapping, and empty ones cannot have one.
    mode: Literal["r"] | None = "r" if file.stat().st_size > _SMALL_BYTES else None
    loaded: Indices = np.asarray(np.load(file, mmap_mode=mode))
    return loaded


class TableWriter:
    """Writes the texts of a table one after the other, in memory that does not grow with them."""

    def __init__(self, folder: Path, vocab: int, masked: bool = False) -> None:
        """`masked`: each text comes with the mask of its targets."""
        self._folder = folder
        self._dtype = id_type(vocab)
        self._vocab = vocab
        self._tokens = (folder / "tokens.bin").open("wb", buffering=1 << 20)
        self._targets = (folder / "targets.bin").open("wb", buffering=1 << 20) if masked else None
        self._ends = array("q")
        self.tokens = 0

    @property
    def texts(self) -> int:
        """How many were ended so far."""
        return len(self._ends)

    @property
    def ends(self) -> Indices:
        """Where each text ends."""
        return np.array(self._ends, dtype=np.int64)

    def extend(self, ids: Ids, targets: NDArray[np.bool_] | None = None) -> None:
        """Go on with the text that is being written."""
        self._tokens.write(ids.astype(self._dtype).tobytes())
        if self._targets is not None and targets is not None:
            self._targets.write(targets.astype(np.uint8).tobytes())
        self.tokens += len(ids)

    def end(self) -> None:
        """The text that is being written is complete."""
        self._ends.append(self.tokens)

    def finish(self, columns: Mapping[str, Indices], **meta: Any) -> None:
        """Write what is known at the end only: further arrays, and `meta` beside the table's own."""
        for name, column in {"ends": self.ends, **columns}.items():
            np.save(self._folder / f"{name}.npy", column)
        own = {"vocab": self._vocab, "tokens": self.tokens, "texts": self.texts}
        (self._folder / "meta.json").write_text(json.dumps({**own, **meta}), encoding="utf-8")

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._tokens, self._targets):
            if file is not None:
                file.close()


class Table:
    """A written table, mapped: its pages are shared by all ranks of the node."""

    def __init__(self, folder: Path) -> None:
        self.meta: Mapping[str, Any] = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        self.ids = _mapped(folder / "tokens.bin", id_type(self.meta["vocab"]))
        self.ends: Indices = load_array(folder / "ends.npy")
        masks = folder / "targets.bin"
        self.targets = _mapped(masks, np.dtype(np.uint8)) if masks.exists() else None
        labels = folder / "labels.npy"
        self.labels: Indices | None = load_array(labels) if labels.exists() else None
        self._folder = folder

    def column(self, name: str) -> Indices:
        """A further array that was saved beside the table."""
        return load_array(self._folder / f"{name}.npy")


class TokenTable:
    """Texts packed without gaps: each row is `length` tokens, and every token but the first is a target."""

    def __init__(self, table: Table, length: int) -> None:
        count = len(table.ids) // length
        self._rows = table.ids[: count * length].reshape(count, length)
        self.tokens_per_sample = length
        self.sample_bytes = 8 * length

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, indices: Indices, epochs: Indices) -> Rows:
        ids = torch.from_numpy(self._rows[indices].astype(np.int64))
        return {"input_ids": ids, "labels": ids}

    def targets(self, indices: Indices) -> Indices | None:
        return None


class RowTable:
    """Rows of whole texts, padded at the right; the first token of a text and padding are no targets.

    Rows with several texts also say each token's position in its own text (`position_ids`), by which models tell the
    texts apart; rows with one text say where it ends (`attention_mask`).
    """

    def __init__(self, table: Table, length: int, packed: bool, padding: int) -> None:
        """The table holds `row_texts` (the texts in the order of rows), `row_ends` and `row_targets`."""
        self._table = table
        self._texts = table.column("row_texts")
        self._row_ends = table.column("row_ends")
        self._row_targets = table.column("row_targets")
        self._packed = packed
        self._padding = padding
        self.tokens_per_sample = length
        self.sample_bytes = 24 * length

    def __len__(self) -> int:
        return len(self._row_ends)

    def take(self, indices: Indices, epochs: Indices) -> Rows:
        shape = (len(indices), self.tokens_per_sample)
        texts, rows = self._chosen(indices)
        source, within, place = self._gathered(texts, rows)
        ids = np.full(shape, self._padding, dtype=np.int64)
        labels = np.full(shape, IGNORED, dtype=np.int64)
        ids.ravel()[place] = self._table.ids[source]
        counts = within > 0
        if self._table.targets is not None:
            counts &= self._table.targets[source] != 0
        labels.ravel()[place[counts]] = ids.ravel()[place[counts]]
        batch = {"input_ids": ids, "labels": labels}
        if self._packed:
            batch["position_ids"] = self._positions(shape, within, place)
        else:
            batch["attention_mask"] = np.zeros(shape, dtype=np.int64)
            batch["attention_mask"].ravel()[place] = 1
        return {name: torch.from_numpy(values) for name, values in batch.items()}

    def targets(self, indices: Indices) -> Indices | None:
        counts: Indices = self._row_targets[indices]
        return counts

    def _chosen(self, indices: Indices) -> tuple[Indices, Indices]:
        """The texts of these rows, and for each its place among the rows asked for."""
        ends = self._row_ends[indices]
        counts = ends - np.where(indices > 0, self._row_ends[indices - 1], 0)
        return self._texts[_ranges(ends - counts, counts)], np.repeat(np.arange(len(indices)), counts)

    def _gathered(self, texts: Indices, rows: Indices) -> tuple[Indices, Indices, Indices]:
        """For each token of these texts: where it lies in the table, in its text, and in the batch."""
        ends = self._table.ends[texts]
        lengths = ends - np.where(texts > 0, self._table.ends[texts - 1], 0)
        within = _ranges(np.zeros_like(lengths), lengths)
        before = np.cumsum(lengths) - lengths
        is_first = np.concatenate([[True], rows[1:] != rows[:-1]])
        row_before = before[is_first][np.cumsum(is_first) - 1]
        return (
            within + np.repeat(ends - lengths, lengths),
            within,
            within + np.repeat(rows * self.tokens_per_sample + before - row_before, lengths),
        )

    def _positions(self, shape: tuple[int, int], within: Indices, place: Indices) -> Indices:
        # Padding begins anew too, so that it belongs to no text.
        positions = np.full(shape, -1, dtype=np.int64)
        positions.ravel()[place] = within
        filled = (positions >= 0).sum(axis=1, keepdims=True)
        rest = np.arange(shape[1])[None, :] - filled
        return np.where(positions >= 0, positions, rest)


class LabelledTable:
    """One text a row, padded at the right, and its class; the class is the one target."""

    tokens_per_sample = 0  # tokens are no targets here

    def __init__(self, table: Table, length: int, padding: int) -> None:
        assert table.labels is not None
        self._table = table
        self._labels = table.labels
        self._length = length
        self._padding = padding
        self.sample_bytes = 16 * length

    def __len__(self) -> int:
        return len(self._table.ends)

    def take(self, indices: Indices, epochs: Indices) -> Rows:
        ends = self._table.ends[indices]
        lengths = ends - np.where(indices > 0, self._table.ends[indices - 1], 0)
        holds = np.arange(self._length)[None, :] < lengths[:, None]
        ids = np.full(holds.shape, self._padding, dtype=np.int64)
        ids[holds] = self._table.ids[_ranges(ends - lengths, lengths)]
        batch = {"input_ids": ids, "attention_mask": holds.astype(np.int64), "labels": self._labels[indices]}
        return {name: torch.from_numpy(values) for name, values in batch.items()}

    def targets(self, indices: Indices) -> Indices | None:
        return None


def _ranges(starts: Indices, counts: Indices) -> Indices:
    """`[start, start + 1, …]` of each, on end."""
    before = np.cumsum(counts) - counts
    found: Indices = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(starts - before, counts)
    return found


def _mapped(file: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if file.stat().st_size == 0:  # which cannot be mapped
        return np.zeros(0, dtype=dtype)
    return np.asarray(np.memmap(file, dtype=dtype, mode="r"))
