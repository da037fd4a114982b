"""What the planner says of model states, against what real ranks hold: to one part in a hundred for every strategy."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.held_states import CASES, Case, held_states

pytestmark = [pytest.mark.slow, pytest.mark.trainer, pytest.mark.timeout(320)]

SOON = (Case("fsdp"), Case("zero-1"), Case("zero-3"))
"""One of each kind of splitting; the others take minutes."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=str(case), marks=[] if case in SOON else [pytest.mark.nightly]) for case in CASES],
)
def test_predicted_states_are_those_that_a_rank_holds(tmp_path: Path, case: Case) -> None:
    found = held_states(tmp_path / "gang", case)

    assert found.predicted == pytest.approx(found.held, rel=0.01)
