"""The worker is killed at points of its steps, scans and reaps; another one goes on, and every promise holds.

`PYTHONPATH=tests python -m crash` plays every point of every life.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from crash.lives import LIVES
from crash.points import play, points_of

OTHERS = 6
"""Points played of each life besides those around its calls, spread over all of it."""


def test_lives_lead_through_every_kind_of_point(sqlite_template: Path) -> None:
    points = set(points_of(sqlite_template, LIVES["a create call in doubt"]))

    around_calls = {f"{when} {verb}" for when in ("before", "after") for verb in ("create", "get", "list_owned")}
    assert around_calls | {"before a commit", "after a commit", "before terminate", "after terminate"} <= points


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "every",
    [pytest.param(16, marks=pytest.mark.slow, id="some"), pytest.param(1, marks=pytest.mark.nightly, id="more")],
)
@pytest.mark.parametrize("name", sorted(LIVES))
def test_a_worker_that_is_killed_at_a_point_of_a_life_breaks_no_promise(
    name: str, every: int, sqlite_template: Path
) -> None:
    life = LIVES[name]
    points = points_of(sqlite_template, life)

    for point in chosen(points)[len(name) % every :: every]:
        play(sqlite_template, life, point)


def chosen(points: Sequence[str]) -> list[int]:
    """Around every create, get and terminate, and some of the rest."""
    around = [number for number, point in enumerate(points) if point.split()[-1] in ("create", "get", "terminate")]
    return sorted({*around, *range(0, len(points), max(1, len(points) // OTHERS))})
