"""Which texts share a row: best fit, longest first (Johnson, "Near-optimal bin packing algorithms", 1973).

Rows hold whole texts, so a text is never torn, and little of a row stays empty.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from shunter_trainer.data.order import Indices


def best_fit(lengths: Indices, capacity: int) -> tuple[Indices, Indices]:
    """Places every text in the fullest row that still holds it.

    `lengths` are at most `capacity`. Returns the texts in the order of rows, and where each row ends among them; both
    depend on the lengths only. Rows come in the order of their first texts, texts in theirs.
    """
    row_of = np.empty(len(lengths), dtype=np.int64)
    rooms: list[int] = []  # distinct room sizes of open rows, ascending
    open_rows: dict[int, list[int]] = {}
    rows = 0
    for text in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[text])
        at = bisect_left(rooms, length)
        if at == len(rooms):
            row, room, rows = rows, capacity, rows + 1
        else:
            room = rooms[at]
            row = open_rows[room].pop()
            if not open_rows[room]:
                del open_rows[room], rooms[at]
        row_of[text] = row
        if left := room - length:
            if left not in open_rows:
                insort(rooms, left)
                open_rows[left] = []
            open_rows[left].append(row)
    return _in_order(row_of, rows)


def one_a_row(count: int) -> tuple[Indices, Indices]:
    """Every text in a row of its own, in the same form."""
    texts = np.arange(count, dtype=np.int64)
    return texts, texts + 1


def _in_order(row_of: Indices, rows: int) -> tuple[Indices, Indices]:
    first = np.full(rows, len(row_of), dtype=np.int64)
    np.minimum.at(first, row_of, np.arange(len(row_of)))
    place = np.empty(rows, dtype=np.int64)
    place[np.argsort(first)] = np.arange(rows)
    renamed = place[row_of]
    texts = np.argsort(renamed, kind="stable").astype(np.int64)
    return texts, np.cumsum(np.bincount(renamed, minlength=rows)).astype(np.int64)
