"""`starting`: every node was told to run; environment, start and rendezvous are under way."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from shunter_schemas.states import State
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change

from shunter_workers.decisions import Decision, Settle
from shunter_workers.states.ends import (
    judge_gang,
    lose_useless,
    new_limits,
    next_limit_s,
    stop_at_limit,
    stop_if_asked,
    stop_if_done,
)
from shunter_workers.states.moving import move_if_asked
from shunter_workers.states.pausing import pause_if_asked
from shunter_workers.states.refusing import lose_unusable
from shunter_workers.states.silence import next_look_s
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
        return _run(view, now)
    again = Change(next_in_s=soonest(next_limit_s(view, now), next_look_s(view, now)))
    return Settle(again, new_limits(view, now))


def _run(view: View, now: datetime) -> Settle:
    """`running`, with the limits that count from this moment: no step of their own has to bring them to the nodes."""
    job = replace(view.job, state=State.RUNNING, started_at=view.job.started_at or now)
    running = replace(view, job=job)
    up = Change(trigger=Trigger.TRAINER_UP, next_in_s=next_limit_s(running, now))
    return Settle(up, new_limits(running, now))
