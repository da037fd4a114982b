"""How soon a node comes again. Pure."""

from __future__ import annotations

from typing import Final

from shunter_schemas.node_sync import Phase
from shunter_schemas.states import State

from shunter_store.settings import Pace

SETTLING_S: Final = 30.0
"""After this long without a change of what is desired, a node that holds or starts need not come every 0.2 s."""

_CHANGING: Final = frozenset({State.QUEUED, State.PROVISIONING, State.STARTING, State.RECOVERING, State.STOPPING})


def next_sync_s(
    pace: Pace, *, desired_phase: str, job_state: State | None, desired_age_s: float, watched: bool
) -> float:
    """Seconds from this answer to the node's next exchange."""
    if desired_phase != Phase.RUN or job_state in _CHANGING:
        return pace.changing_s if desired_age_s < SETTLING_S else pace.watched_s
    return pace.watched_s if watched else pace.quiet_s
