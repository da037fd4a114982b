"""All promises under attack at once, by a seed: faults of the cloud, kills, partitions, clocks, disks, cancels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.clocks import can_set_clocks

from chaos.runs import draw, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

MANY = [pytest.param(seed, marks=pytest.mark.nightly) for seed in (3, 4, 5, 6, *range(1000, 1060))]


@pytest.mark.parametrize("seed", [1, 2, *MANY])
def test_every_promise_is_kept(seed: int, tmp_path: Path) -> None:
    surroundings = draw(seed, clocks=can_set_clocks(), disks=os.geteuid() == 0)

    report = run(seed, tmp_path, surroundings)

    assert report.violations == [], report
