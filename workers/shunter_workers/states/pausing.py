"""A pause: the ranks checkpoint and stop, every node goes, and the job rests in `queued` until it is resumed.

The way there leads through `recovering`, as every way on which a gang ends and another may follow. Nothing of a job
that rests exists anywhere: its ledger rows are closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from shunter_schemas.states import Health, Reason
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change
from shunter_store.node.gang import Outcome

from shunter_workers.decisions import Decision, Settle, stop, wait
from shunter_workers.states.ends import stop_for_user_failure
from shunter_workers.states.releasing import halt_and_release
from shunter_workers.view import View

AT_REST: Final[Mapping[str, Any]] = {"reason": "paused", "detail": "it rests until somebody resumes it", "tried": []}


def pause_if_asked(view: View) -> Decision | None:
    """From any state in which a job has nodes, or is about to."""
    if view.job.pause_requested_at is None:
        return None
    change = Change(trigger=Trigger.PAUSE, next_in_s=0.0, set={"health": Health.OK})
    return Settle(change, memory=view.memory.but(pausing=view.job.generation, silent_since=None))


def judge_halting(view: View) -> Decision | None:
    """The ranks may have ended by themselves before they heard of the pause, or of the move: that counts."""
    if view.job.generation not in (view.memory.pausing, view.memory.moving):
        return None
    if view.verdict.outcome is Outcome.DONE:
        return stop(Reason.DONE, view.verdict.message or None)
    return stop_for_user_failure(view) if view.verdict.outcome is Outcome.USER_FAILURE else None


def come_to_rest(view: View, now: datetime) -> Decision | None:
    """The next thing between a gang and a job at rest; None: nobody asked for a pause, or not any more."""
    if view.job.pause_requested_at is None:
        return None
    if view.members:
        return halt_and_release(view, now, "paused")
    if view.nodes:
        return wait()  # they are on their way out
    change = Change(
        trigger=Trigger.PAUSED,
        next_in_s=0.0,
        set={"plan": None, "provider": None, "waiting": dict(AT_REST), "health": Health.OK},
    )
    rested = view.memory.but(
        paused_at=now.timestamp(), pausing=0, silent_since=None, short_since=None, not_before=0.0, asked={}
    )
    return Settle(change, memory=rested)


def rest(view: View, now: datetime) -> Decision | None:
    """While it is paused nothing happens, and no limit of time runs; None: it is not, or not any more."""
    memory, paused_at = view.memory, view.memory.paused_at
    if view.job.pause_requested_at is None:
        if paused_at is None:
            return None
        slept_s = max(0.0, now.timestamp() - paused_at)
        return Settle(Change(next_in_s=0.0), memory=memory.but(paused_at=None, paused_s=memory.paused_s + slept_s))
    if paused_at is None:
        return Settle(Change(set={"waiting": dict(AT_REST)}), memory=memory.but(paused_at=now.timestamp()))
    return wait()
