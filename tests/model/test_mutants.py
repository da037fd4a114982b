"""The model finds every wrong version of the code that the table names, and says by which promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.machine import attack
from model.mutants import MUTANTS, Mutant
from model.verdicts import Broken

pytestmark = pytest.mark.slow

EXAMPLES = 100


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_the_model_finds_that(mutant: Mutant, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.make(monkeypatch)

    with pytest.raises(Broken) as caught:
        attack(sqlite_template, examples=EXAMPLES)

    assert caught.value.number in mutant.breaks, caught.value
