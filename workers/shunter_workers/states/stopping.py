"""`stopping`: the reason is fixed; nodes stop, upload what is left, and go. Over when every row is closed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from shunter_schemas.states import Reason
from shunter_store.job.lifecycle import OUTCOME, Trigger
from shunter_store.job.steps import Change
from shunter_store.node.gang import Outcome

from shunter_workers.decisions import Decision, Release, Settle
from shunter_workers.states.ends import budget_is_spent
from shunter_workers.states.releasing import halt_and_release
from shunter_workers.view import View


def decide(view: View, now: datetime) -> Decision:
    """Settle the outcome when it is known, stop and release the nodes, and end when none is left."""
    settled = _settle_outcome(view)
    if settled is not None:
        return _and_release(settled, view, now)
    if not view.nodes:
        return Settle(_over(view))
    return _cut_short(view) or halt_and_release(view, now, str(view.job.reason))


def _over(view: View) -> Change:
    """The end. Nodes that told how their ranks ended, and went before all that these left was stored, are told of: the
    result may lack something, and nobody would see it."""
    lost = [part.node_rank for part in view.gang.members if part.ended is not None and not part.drained]
    if not lost:
        return Change(trigger=Trigger.NODES_GONE)
    which = f"node {lost[0]}" if len(lost) == 1 else f"nodes {', '.join(map(str, lost))}"
    words = f"{which} went before all that was left there could be stored: files, checkpoints or output may be missing"
    message = "\n".join(part for part in (view.job.message, words) if part)
    told = ("job.results_incomplete", {"nodes": lost, "message": words})
    return Change(trigger=Trigger.NODES_GONE, set={"message": message}, events=[told])


def _and_release(settled: Settle, view: View, now: datetime) -> Settle:
    """With the outcome, what is next for the nodes: it would be decided a moment later on the same rows."""
    reason = settled.change.reason
    assert reason is not None, "an outcome has a reason"
    known = replace(view, job=replace(view.job, reason=reason, outcome=OUTCOME[reason]))
    after = halt_and_release(known, now, str(reason)) if view.members else None
    return replace(settled, writes=after.writes, memory=after.memory) if isinstance(after, Settle) else settled


def _cut_short(view: View) -> Decision | None:
    """A budget is a cap: once it is spent, not even a last checkpoint is waited for. What ranks that were done leave is
    what the money was spent for, and is."""
    if view.job.reason is Reason.DONE or not view.members or not budget_is_spent(view):
        return None
    return Settle(Change(next_in_s=0.0), [Release([node.id for node in view.members], str(view.job.reason))])


def _settle_outcome(view: View) -> Settle | None:
    """A cancel of running ranks leaves open whether they had succeeded before they heard of it."""
    if view.job.outcome is not None:
        return None
    if view.verdict.outcome is Outcome.DONE:
        return Settle(Change(trigger=Trigger.STOP, reason=Reason.DONE, next_in_s=0.0))
    assert view.job.reason is not None, "a stopping job has a reason"
    told = view.gang.members
    if all(node.ended is not None or node.drained or node.lost for node in told):
        return Settle(Change(trigger=Trigger.STOP, reason=view.job.reason, next_in_s=0.0))
    return None
