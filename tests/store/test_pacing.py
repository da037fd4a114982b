"""How soon a node comes again."""

from __future__ import annotations

import pytest
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import State
from shunter_store.installation.settings import Pace
from shunter_store.node.pacing import next_sync_s

PACE = Pace(changing_s=0.2, watched_s=1.0, quiet_s=5.0)


@pytest.mark.parametrize(
    ("waited_s", "next_s"),
    [(-3.0, 0.2), (0.0, 0.2), (2.0, 0.2), (5.0, 0.5), (10.0, 1.0), (3600.0, 1.0)],
)
def test_who_waits_for_orders_asks_the_less_often_the_longer_it_has_waited(waited_s: float, next_s: float) -> None:
    answered_s = next_sync_s(
        PACE, desired_phase=Phase.HOLD, job_state=State.PROVISIONING, desired_age_s=waited_s, watched=False
    )

    assert answered_s == pytest.approx(next_s)


def test_a_busy_service_is_not_asked_more_often_than_it_wants() -> None:
    slow = PACE.model_copy(update={"changing_s": 2.0})

    answered_s = next_sync_s(slow, desired_phase=Phase.STOP, job_state=State.STOPPING, desired_age_s=60.0, watched=True)

    assert answered_s == 2.0
