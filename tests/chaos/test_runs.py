"""Which runs share a site."""

from __future__ import annotations

from chaos.ground import Surroundings
from chaos.runs import draw, together

HERE, THERE = Surroundings("embedded"), Surroundings("deployed")


def test_seeds_with_the_same_surroundings_share_sites_up_to_the_number_that_one_takes() -> None:
    groups = list(together(range(7), lambda seed: HERE if seed < 5 else THERE, most=2))

    assert groups == [(HERE, [0, 1]), (HERE, [2, 3]), (HERE, [4]), (THERE, [5, 6])]


def test_a_seed_has_the_same_surroundings_each_time_and_never_what_the_machine_cannot_do() -> None:
    first = [draw(seed, clocks=True, disks=True) for seed in range(200)]

    again = [draw(seed, clocks=True, disks=True) for seed in range(200)]
    poorer = [draw(seed, clocks=False, disks=False) for seed in range(200)]

    assert first == again
    assert len({(one.setting, one.clocks, one.small_disk) for one in first}) == 6
    assert not any(one.clocks or one.small_disk for one in poorer)
