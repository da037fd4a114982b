"""A move: the ranks checkpoint and stop, and the same job goes on under a changed document.

Nodes that serve the new plan as they are are kept: a change of strategy alone must not cost a place on a scarce GPU.
Else every node goes first, since two gangs of one job must never live at once, and the job is planned like a new one.
The document changes only once nothing runs any more: until then a recovery goes on under the old one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from shunter_planner import Candidate, Facts, Plan, plan
from shunter_planner.values import as_json
from shunter_schemas.job import load_job
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import Health
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change, Moved

from shunter_workers.decisions import Decision, Settle, wait
from shunter_workers.states.releasing import halt_and_release
from shunter_workers.view import View


def move_if_asked(view: View) -> Decision | None:
    """From any state in which a job has nodes, or is about to."""
    if view.job.move_wish is None:
        return None
    change = Change(trigger=Trigger.MOVE, next_in_s=0.0, set={"health": Health.OK})
    return Settle(change, memory=view.memory.but(moving=view.job.generation, silent_since=None))


def move_while_provisioning(view: View) -> Decision | None:
    """The same; nodes that were told nothing yet and will do as they are need not even stop."""
    if any(node.desired_phase == Phase.RUN for node in view.members):
        return move_if_asked(view)
    return move_kept(view) or move_if_asked(view)


def move_in_queue(view: View) -> Decision | None:
    """A job that waits or rests has nothing to stop."""
    return _take_over(view, {}) if view.job.move_wish is not None else None


def clear_for_move(view: View, now: datetime) -> Decision | None:
    """In `recovering`: let nodes go that the new plan cannot use; None: there is no move, or they can stay."""
    if view.job.move_wish is None or (view.members and kept_plan(view) is not None):
        return None
    if view.members:
        return halt_and_release(view, now, "moved")
    return wait() if view.nodes else _take_over(view, {"plan": None, "provider": None})


def move_kept(view: View) -> Decision | None:
    """In `recovering`, once the ranks of the kept nodes have ended: the same nodes, the new document."""
    answer = kept_plan(view) if view.job.move_wish is not None else None
    return None if answer is None else _take_over(view, {"plan": as_json(answer)})


def kept_plan(view: View) -> Plan | None:
    """The plan of the changed document on the nodes that the job has; None: it asks for others."""
    wish = view.job.move_wish
    if view.job.plan is None or wish is None or wish.keys() != {"strategy"}:
        return None
    before = view.plan
    offer = Candidate(before.instance, before.offer, before.shared_host)
    facts = Facts(instances=[before.instance], model=view.model)
    answer = plan(load_job({**view.job.spec, **wish}), [offer], facts, view.history)
    return answer if isinstance(answer, Plan) and answer.num_nodes == before.num_nodes else None


def _take_over(view: View, columns: dict[str, Any]) -> Settle:
    assert view.job.move_wish is not None
    moved = Moved(view.job.move_wish, view.memory.ordered_generation)
    memory = view.memory.but(
        silent_since=None, short_since=None, create_failures=0, blocks=(), not_before=0.0, most_micro_size=None
    )
    return Settle(Change(next_in_s=0.0, set=columns, moved=moved), memory=memory)
