"""Which texts share a row."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from shunter_trainer.data.packing import best_fit

CAPACITY = 50


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, CAPACITY), max_size=60))
def test_every_text_has_one_place_and_no_row_holds_too_much(sizes: list[int]) -> None:
    lengths = np.array(sizes, dtype=np.int64)

    texts, ends = best_fit(lengths, CAPACITY)

    rows = np.split(texts, ends[:-1]) if len(ends) else []
    assert sorted(texts.tolist()) == list(range(len(sizes)))
    assert all(0 < lengths[row].sum() <= CAPACITY for row in rows)
    assert all(row.tolist() == sorted(row.tolist()) for row in rows)
    # No two rows could be one.
    rooms = sorted(int(lengths[row].sum()) for row in rows)
    assert len(rooms) < 2 or rooms[0] + rooms[1] > CAPACITY


def test_a_hundred_thousand_texts_are_placed_in_a_moment_and_fill_their_rows() -> None:
    lengths = np.random.default_rng(0).integers(20, 2000, 100_000)

    _, ends = best_fit(lengths, 2048)

    assert lengths.sum() / (len(ends) * 2048) > 0.99


def test_no_text_makes_no_row() -> None:
    texts, ends = best_fit(np.zeros(0, dtype=np.int64), CAPACITY)

    assert (len(texts), len(ends)) == (0, 0)
