"""What the planner has to know of a job beside its document: how far it is, what it cost, what proved too large."""

from __future__ import annotations

from datetime import datetime

from shunter_planner import Facts

from shunter_workers.view import View


def facts_of(view: View, now: datetime) -> Facts:
    """For a plan of the whole gang, at this moment."""
    memory, started_at = view.memory, view.job.started_at
    ran_s = 0.0 if started_at is None else (now - started_at).total_seconds() - memory.paused_s
    return Facts(
        instances=view.market.instances,
        unavailable=view.market.unavailable,
        blocks=[*memory.standing_blocks(now), *view.market.refused],
        model=view.model,
        spent_usd=view.cost_usd,
        steps_done=view.checkpoint.step if view.checkpoint is not None else view.job.resumes_from_step or 0,
        ran_s=max(0.0, ran_s),
        most_micro_size=memory.most_micro_size,
    )
