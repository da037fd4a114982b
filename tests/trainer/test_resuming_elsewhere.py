"""A training that was stopped under one strategy goes on under any other, on any number of ranks, as if nothing was."""

from itertools import combinations
from pathlib import Path

import pytest
from support.resuming import PLACES, TOLERANCE, WORLD_SIZES, Move, differences, pairwise_cover, whole_matrix
from support.strategies import RESUMABLE

pytestmark = pytest.mark.trainer


def test_the_cover_has_every_pair_of_factors() -> None:
    factors = [(before.name, before.world_size, after.name, after.world_size) for before, after in pairwise_cover()]

    values = (RESUMABLE, WORLD_SIZES, RESUMABLE, WORLD_SIZES)
    for first, second in combinations(range(4), 2):
        met = {(row[first], row[second]) for row in factors}
        assert met == {(one, other) for one in values[first] for other in values[second]}
    assert len(whole_matrix()) == len(PLACES) ** 2 == 324


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_losses_go_on_under_another_strategy_and_number_of_ranks(tmp_path: Path) -> None:
    check(tmp_path, pairwise_cover(), timeout_s=280.0)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_losses_go_on_from_everywhere_to_everywhere(tmp_path: Path) -> None:
    check(tmp_path, whole_matrix(), timeout_s=3000.0)


def check(folder: Path, moves: list[Move], timeout_s: float) -> None:
    found = differences(folder, moves, timeout_s)

    assert len(found) == len(moves)
    assert {move: apart for move, apart in found.items() if apart > TOLERANCE} == {}
