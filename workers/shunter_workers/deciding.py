"""One decision for one job: the state's own first, and while that only waits, rows on their way out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from shunter_schemas.states import State
from shunter_store.job.steps import Change

from shunter_workers.decisions import Act, Decision, Settle, WakeWaiting
from shunter_workers.states import provisioning, queued, recovering, running, starting, stopping
from shunter_workers.states.closing import close_next
from shunter_workers.view import View, soonest

BY_STATE: Final[Mapping[State, Callable[[View, datetime], Decision]]] = {
    State.QUEUED: queued.decide,
    State.PROVISIONING: provisioning.decide,
    State.STARTING: starting.decide,
    State.RUNNING: running.decide,
    State.RECOVERING: recovering.decide,
    State.STOPPING: stopping.decide,
}


def decide(view: View, now: datetime) -> Decision:
    """What this step does."""
    own = BY_STATE[view.job.state](view, now)
    if isinstance(own, Act) or own.change.trigger is not None or not _is_idle(own):
        return own
    closing = close_next(view, now)
    if closing is None:
        return own
    if isinstance(closing, Settle) and closing.only_waits:
        return replace(own, change=_sooner(own, closing.change.next_in_s))
    # The job's own decision comes again in the next step. It must never keep rows from closing: what they hold may be
    # what everybody waits for, this job included.
    return closing


def _is_idle(own: Settle) -> bool:
    """Whether nothing of the job itself is lost when the decision is put off by a step."""
    return all(isinstance(write, WakeWaiting) for write in own.writes)


def _sooner(own: Settle, next_in_s: float | None) -> Change:
    return replace(own.change, next_in_s=soonest(own.change.next_in_s, next_in_s))
