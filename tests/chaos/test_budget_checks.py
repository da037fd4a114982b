"""What the checker of budgets allows for on a busy machine, and what it does not."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from shunter_schemas.states import State

from chaos.evidence import Told
from chaos.of_nodes import budgets_hold

STOPS_AT = 1004.0


def evidence(*ends: float, busy: bool = True, stops_at: float = STOPS_AT) -> Any:
    """A node that was made at 1000 and billed a dollar a second until 1100, for a job with 64 dollars."""
    return SimpleNamespace(
        told=Told({"job": "endless"}, {"job": 64.0}),
        at=1200.0,
        busy=busy,
        jobs={},
        nodes=[{"token": "node", "job_id": "job", "journal_id": "its"}],
        entries=[SimpleNamespace(token="node", created_at=1000.0, cost_usd=lambda at: min(at, 1100.0) - 1000.0)],
        files=[SimpleNamespace(journal_id="its", records=[{"type": "stopped", "at": end} for end in ends])],
        transitions={"job": [{"to_state": State.STOPPING, "at": datetime.fromtimestamp(stops_at, UTC)}]},
    )


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param((1003.0,), id="ranks that ended in time"),
        pytest.param((), id="no ranks"),
        pytest.param((1004.0 + 7 * 3600,), id="a node whose clock was ahead"),
    ],
)
def test_a_release_that_is_late_on_a_busy_machine_is_no_overrun(ends: tuple[float, ...]) -> None:
    assert list(budgets_hold(evidence(*ends))) == []


@pytest.mark.parametrize("ends", [(), (1003.0,)])
def test_it_is_one_on_a_machine_that_is_not_busy(ends: tuple[float, ...]) -> None:
    assert list(budgets_hold(evidence(*ends, busy=False)))


@pytest.mark.parametrize(
    ("ends", "stops_at"),
    [
        pytest.param((1030.0,), 1030.0, id="ranks that went on"),
        pytest.param((), 1030.0, id="a stop that came late"),
        pytest.param((1030.0 - 3 * 3600,), 1030.0, id="and a node whose clock was behind hides nothing"),
    ],
)
def test_who_begins_to_stop_too_late_overruns_on_every_machine(ends: tuple[float, ...], stops_at: float) -> None:
    assert list(budgets_hold(evidence(*ends, stops_at=stops_at)))
