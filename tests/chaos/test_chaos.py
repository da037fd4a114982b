"""All promises under attack at once, by seeds: faults of the cloud, kills, partitions, clocks, disks, cancels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.clocks import can_set_clocks

from chaos.ground import Size, Surroundings
from chaos.runs import draw, play_all, together
from chaos.site import Setting

pytestmark = pytest.mark.slow

BRIEF = Size(jobs=2, gangs=1, endless=0, lines=8, rules=4, acts=4)
MANY = list(together(range(1000, 1200), lambda seed: draw(seed, clocks=can_set_clocks(), disks=os.geteuid() == 0), 8))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("setting", "seeds"), [("embedded", range(1, 7)), ("deployed", range(7, 13))], ids=["embedded", "deployed"]
)
def test_every_promise_is_kept_in_one_brief_run_after_the_other(setting: Setting, seeds: range, tmp_path: Path) -> None:
    small_disk = setting == "embedded" and os.geteuid() == 0
    surroundings = Surroundings(setting, clocks=can_set_clocks(), small_disk=small_disk)

    reports = list(play_all(seeds, tmp_path, surroundings, BRIEF))

    assert reports[-1].violations == [], reports[-1]
    assert [report.seed for report in reports] == list(seeds)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("surroundings", "seeds"), MANY, ids=[f"{group[0]}-{group[-1]}-{surroundings}" for surroundings, group in MANY]
)
def test_every_promise_is_kept_in_two_hundred_runs(
    surroundings: Surroundings, seeds: list[int], tmp_path: Path
) -> None:
    reports = list(play_all(seeds, tmp_path, surroundings))

    assert reports[-1].violations == [], reports[-1]
    assert [report.seed for report in reports] == seeds
