"""The order of samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shunter_trainer.data.order import permute, sample_indices
from shunter_trainer.seeds import mix


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 5000), seed=st.integers(0, 2**32 - 1), epoch=st.integers(0, 1000))
def test_an_epoch_visits_every_sample_exactly_once(count: int, seed: int, epoch: int) -> None:
    positions = np.arange(count, dtype=np.int64)

    order = permute(positions, count, seed, epoch)

    assert np.array_equal(np.sort(order), positions)


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 5000), start=st.integers(0, 10_000), length=st.integers(0, 300), seed=st.integers(0, 99))
def test_any_stretch_of_the_order_is_the_same_as_in_the_whole(count: int, start: int, length: int, seed: int) -> None:
    whole = sample_indices(np.arange(start + length, dtype=np.int64), count, seed)

    stretch = sample_indices(np.arange(start, start + length, dtype=np.int64), count, seed)

    assert np.array_equal(stretch, whole[start:])


def test_each_epoch_and_each_seed_has_an_order_of_its_own() -> None:
    positions = np.arange(1000, dtype=np.int64)

    orders = {tuple(permute(positions, 1000, seed, epoch)) for seed in range(5) for epoch in range(5)}

    assert len(orders) == 25


def test_an_epoch_begins_where_the_one_before_it_ended() -> None:
    two_epochs = sample_indices(np.arange(20, dtype=np.int64), 10, seed=3)

    assert sorted(two_epochs[:10]) == sorted(two_epochs[10:]) == list(range(10))
    assert list(two_epochs[:10]) != list(two_epochs[10:])


def test_positions_and_where_they_go_are_uncorrelated() -> None:
    count = 20_000

    order = permute(np.arange(count, dtype=np.int64), count, 17, 0)

    assert abs(np.corrcoef(np.arange(count), order)[0, 1]) < 0.03
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.03


def test_far_positions_of_a_huge_data_set_need_no_table() -> None:
    positions = np.array([0, 10**12 - 1, 5 * 10**11], dtype=np.int64)

    order = permute(positions, 10**12, 1, 2)

    assert len(set(order.tolist())) == 3
    assert ((order >= 0) & (order < 10**12)).all()


@pytest.mark.parametrize("values", [(0, 0), (0, 1), (1, 0), (2**64, 5), (-1, 5)])
def test_mixing_gives_64_bits_that_depend_on_every_value(values: tuple[int, int]) -> None:
    first, second = values

    mixed = mix(first, second)

    assert 0 <= mixed < 2**64
    assert mixed not in (mix(first, second + 1), mix(second, first + 7))
