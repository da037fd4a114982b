"""How rows on their way out are closed, in whatever state the job is: terminate, then prove absence, one call a step.

A row closes on proof only: a complete listing by its own account that does not show it, twice, and `get` says gone. A
provider that refuses to terminate keeps its row open for ever.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from shunter_schemas.states import NodeState
from shunter_store.job.steps import Change
from shunter_store.node.ledger import NodeRow
from shunter_store.node.scans import SCANS_FOR_PROOF

from shunter_workers.decisions import Act, Close, Decision, Prove, Settle, Terminate, wait
from shunter_workers.view import View, seconds_until, soonest

FIRST_RETRY_S: Final = 5.0
LONGEST_RETRY_S: Final = 300.0


def close_next(view: View, now: datetime) -> Decision | None:
    """The next thing to do for rows on their way out; None: there are none."""
    steps = [_close(node, view, now) for node in view.nodes if node.state is NodeState.RELEASING]
    urgent = next((step for step in steps if isinstance(step, Settle | Act)), None)
    if urgent is not None or not steps:
        return urgent
    return wait(soonest(*(step for step in steps if isinstance(step, float))))


def _close(node: NodeRow, view: View, now: datetime) -> Decision | float | None:
    """What to do now, or in how many seconds to look again, or None: when woken."""
    if node.handle is None:
        return _close_without_handle(node, now)
    if node.absent_scans >= SCANS_FOR_PROOF:
        return Act(Prove(node))
    asked_at = view.memory.asked.get(node.id)
    if asked_at is None or asked_at > now.timestamp():  # by a clock that was set back since
        return Act(Terminate(node))
    again_in_s = asked_at + _retry_s(node, now) - now.timestamp()
    return again_in_s if again_in_s > 0 else Act(Terminate(node))


def _close_without_handle(node: NodeRow, now: datetime) -> Decision | float | None:
    if node.create_deadline_at is None:
        return Settle(Change(next_in_s=0.0), [Close(node, {"kind": "never_begun"})])
    if node.absent_scans >= SCANS_FOR_PROOF:
        return Settle(Change(next_in_s=0.0), [Close(node, {"kind": "absent", "account": node.account})])
    return seconds_until(node.create_deadline_at, now) or FIRST_RETRY_S  # scans find it, or do not


def _retry_s(node: NodeRow, now: datetime) -> float:
    """Longer the longer it takes."""
    age_s = (now - node.releasing_at).total_seconds() if node.releasing_at else 0.0
    return min(LONGEST_RETRY_S, max(FIRST_RETRY_S, age_s / 4))
