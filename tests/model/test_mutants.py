"""The model finds every wrong version of the code that the table names, and says by which promise."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from model.machine import attack
from model.mutants import MUTANTS, Mutant
from model.verdicts import Broken

pytestmark = pytest.mark.timeout(900)

EXAMPLES = 100
HARD_TO_FIND = {
    "a cancel is overlooked",
    "a gang is started twice under one generation",
    "a listing of another account counts",
    "a lost node counts for more than a success",
    "a node is taken for ready that never booted",
    "a row is closed without asking for its node",
    "a success that came before the cancel is overlooked",
    "absence counts before a node could be listed",
    "checkpoints of any generation are committed",
    "events are written in a transaction of their own",
    "one listing is proof of absence",
    "output that comes again is kept again",
}
"""These take from 13 s to minutes; any other takes seconds."""


def marked(mutant: Mutant) -> ParameterSet:
    mark = pytest.mark.nightly if mutant.name in HARD_TO_FIND else pytest.mark.slow
    return pytest.param(mutant, marks=mark, id=mutant.name.replace(" ", "_"))


def test_every_mutant_that_is_hard_to_find_is_in_the_table() -> None:
    assert {mutant.name for mutant in MUTANTS} >= HARD_TO_FIND


@pytest.mark.parametrize("mutant", [marked(mutant) for mutant in MUTANTS])
def test_the_model_finds_that(mutant: Mutant, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.make(monkeypatch)

    with pytest.raises(Broken) as caught:
        attack(sqlite_template, examples=EXAMPLES)

    assert caught.value.number in mutant.breaks, caught.value
