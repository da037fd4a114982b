"""How soon a node comes again. Pure."""

from __future__ import annotations

from typing import Final

from shunter_schemas.node_sync import Phase
from shunter_schemas.states import State

from shunter_store.installation.settings import Pace

PATIENCE: Final = 0.1
"""Of the time that a node has waited already, so much it waits until it asks again: what it adds nobody notices, and a
thousand nodes that wait for their orders do not ask 5,000 times a second."""

_CHANGING: Final = frozenset({State.QUEUED, State.PROVISIONING, State.STARTING, State.RECOVERING, State.STOPPING})


def next_sync_s(
    pace: Pace, *, desired_phase: str, job_state: State | None, desired_age_s: float, watched: bool
) -> float:
    """Seconds from this answer to the node's next exchange."""
    if desired_phase != Phase.RUN or job_state in _CHANGING:
        return max(pace.changing_s, min(pace.watched_s, PATIENCE * desired_age_s))
    return pace.watched_s if watched else pace.quiet_s
