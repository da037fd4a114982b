"""The model finds every wrong version of the code that the table names, and says by which promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.machine import attack
from model.mutants import MUTANTS, Mutant
from model.scenes import SCENES
from model.verdicts import Broken
from model.world import World

EXAMPLES = 100


def test_every_mutant_has_a_scene() -> None:
    assert SCENES.keys() == {mutant.name for mutant in MUTANTS}


each_mutant = pytest.mark.parametrize("mutant", [pytest.param(one, id=one.name.replace(" ", "_")) for one in MUTANTS])


@pytest.mark.slow
@each_mutant
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
@each_mutant
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
