"""`starting`: every node was told to run; environment, start and rendezvous are under way."""

from __future__ import annotations

from datetime import datetime

from shunter_store.lifecycle import Trigger
from shunter_store.steps import Change

from shunter_workers.decisions import Decision, Settle, wait
from shunter_workers.states.ends import (
    judge_gang,
    lose_useless,
    next_limit_s,
    next_silence_s,
    stop_at_limit,
    stop_if_asked,
    stop_if_done,
)
from shunter_workers.states.moving import move_if_asked
from shunter_workers.states.pausing import pause_if_asked
from shunter_workers.states.refusing import lose_unusable
from shunter_workers.view import View, soonest


def decide(view: View, now: datetime) -> Decision:
    """How it ended, if it did; `running` once every rank is up."""
    own = (
        stop_if_done(view)
        or stop_if_asked(view)
        or judge_gang(view, now)
        or lose_unusable(view, now)
        or lose_useless(view, now)
        or stop_at_limit(view, now)
        or pause_if_asked(view)
        or move_if_asked(view)
    )
    if own is not None:
        return own
    if view.gang.all_up:
        return Settle(Change(trigger=Trigger.TRAINER_UP, next_in_s=0.0))
    return wait(soonest(next_limit_s(view, now), next_silence_s(view, now)))
