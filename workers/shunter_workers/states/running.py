"""`running`: nothing to do but to notice an end, a limit, or silence."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from shunter_schemas.states import Health
from shunter_store.job.steps import Change

from shunter_workers.decisions import Decision, Settle, wait
from shunter_workers.states.ends import (
    hold_to_limits,
    judge_gang,
    lose_useless,
    next_limit_s,
    stop_at_limit,
    stop_if_asked,
    stop_if_done,
)
from shunter_workers.states.foretelling import foretell
from shunter_workers.states.moving import move_if_asked
from shunter_workers.states.pausing import pause_if_asked
from shunter_workers.states.refusing import lose_unusable
from shunter_workers.states.silence import next_look_s
from shunter_workers.view import View, soonest

LOOK_AGAIN_S: Final = 5.0
"""While nodes are silent: nothing wakes the job when they come back without news."""


def decide(view: View, now: datetime) -> Decision:
    """How it ended, if it did; else whether it is within reach."""
    own = (
        stop_if_done(view)
        or stop_if_asked(view)
        or judge_gang(view, now)
        or lose_unusable(view, now)
        or lose_useless(view, now)
        or stop_at_limit(view, now)
        or pause_if_asked(view)
        or move_if_asked(view)
        or foretell(view, now)
        or hold_to_limits(view, now)
    )
    if own is not None:
        return own
    health = Health.UNREACHABLE if is_silent(view, now) else Health.OK
    looks = (
        LOOK_AGAIN_S if health is Health.UNREACHABLE else None,
        next_look_s(view, now) if view.memory.mute else None,
    )
    again_in_s = soonest(next_limit_s(view, now), *looks)
    if health is view.job.health:
        return wait(again_in_s)
    return Settle(Change(next_in_s=again_in_s, set={"health": health}, events=[("job.health", {"health": health})]))


def is_silent(view: View, now: datetime) -> bool:
    """Whether some node has not reported for too long. The sweep wakes the job then."""
    return any(
        node.last_sync_at is not None and (now - node.last_sync_at).total_seconds() > view.unreachable_after_s
        for node in view.members
    )
