"""The model finds every wrong version of the code that the table names, and says by which promise."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from model.machine import attack
from model.mutants import MUTANTS, Mutant
from model.scenes import SCENES
from model.verdicts import Broken
from model.world import World

EXAMPLES = 100
RARELY_FOUND = frozenset(
    {
        "the reaper gives no grace",
        "the reaper knows nodes by name",
        "a lease is over as soon as a clock says so",
        "nodes are replaced while they run",
        "twins are listened to",
    }
)
"""The random search does not come upon these within a night for certain."""


def test_every_mutant_has_a_scene() -> None:
    names = {mutant.name for mutant in MUTANTS}
    assert SCENES.keys() == names
    assert names > RARELY_FOUND


def marked(mutant: Mutant) -> ParameterSet:
    return pytest.param(mutant, id=mutant.name.replace(" ", "_"))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [marked(one) for one in MUTANTS])
def test_a_scene_finds_that(mutant: Mutant, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.make(monkeypatch)
    world = World(sqlite_template)

    try:
        with pytest.raises(Broken) as caught:
            SCENES[mutant.name](world)
    finally:
        world.close()

    assert caught.value.number in mutant.breaks, caught.value


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", [marked(one) for one in MUTANTS if one.name not in RARELY_FOUND])
def test_the_random_search_finds_that(mutant: Mutant, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.make(monkeypatch)

    with pytest.raises(Broken) as caught:
        attack(sqlite_template, examples=EXAMPLES)

    assert caught.value.number in mutant.breaks, caught.value


@pytest.mark.slow
@pytest.mark.parametrize("name", {scene: name for name, scene in SCENES.items()}.values())
def test_the_code_as_it_is_keeps_every_promise_in_the_scene_for(name: str, sqlite_template: Path) -> None:
    world = World(sqlite_template)

    try:
        SCENES[name](world)
        world.check()
    finally:
        world.close()
