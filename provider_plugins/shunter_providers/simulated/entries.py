"""One entry of the simulated cloud's books: a node or a left-over disk, what it shows, and what it has cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from shunter_providers.contract import Fault, NodeCondition, NodeView

NEVER = 4e9
"""A time that does not come (2096), where SQL wants a number."""


class Shown(NamedTuple):
    """As much of an entry as a listing needs."""

    handle: str
    token: str
    kind: str
    usd_per_hour: float
    boots_at: float
    fails: bool
    preempted_at: float
    gone_at: float
    queued_until: float
    fails_for: str


SHOWN: Final = Shown._fields
_REASONS: Final = {
    ("disk", NodeCondition.STOPPED, None): "left-over disk",
    ("node", NodeCondition.QUEUED, None): "it waits for capacity",
    ("node", NodeCondition.FAILED, Fault.INVALID): "404 its image does not exist",
}
_ADDRESSES: Final = {"private": "127.0.0.1", "interface": "lo"}


@dataclass(frozen=True, slots=True)
class Entry:
    """Times are seconds of the epoch."""

    handle: str
    token: str
    deployment: str
    account: str
    kind: str
    """`node`, or `disk`: a left-over that bills."""
    instance_type: str
    region: str
    capacity: str
    gpus: int
    usd_per_hour: float
    created_at: float
    visible_at: float
    boots_at: float
    fails: bool
    """Fails instead of running once it has booted."""
    preempted_at: float
    asked_at: float | None
    """When its end was asked for first."""
    stuck_until: float
    gone_at: float
    launch: str
    """What the node runs once it has booted; empty: nothing."""
    started: bool = False
    warned: bool = False
    cleared: bool = False
    """Whether the hypervisor is done with it."""
    queued_until: float = 0.0
    """Until then it waits for capacity, and bills nothing."""
    fails_for: str = ""
    """The `Fault` that the cloud names, if it `fails`; empty: it names none."""

    @property
    def ends_at(self) -> float:
        """When it stops to exist, and to bill."""
        return min(self.gone_at, self.preempted_at)

    def exists(self, at: float) -> bool:
        """Whether it is there, and bills."""
        return at < self.ends_at

    def condition(self, at: float) -> NodeCondition:
        """What the cloud says of it."""
        return _condition(self, at)

    def view(self, at: float) -> NodeView:
        """As a caller sees it."""
        return view_of(self, at)

    def cost_usd(self, at: float) -> float:
        """What it has cost up to a time: from its creation, or the end of its queue, to its end, by the second."""
        begins_at = max(self.created_at, self.queued_until)
        return max(0.0, min(at, self.ends_at) - begins_at) / 3600.0 * self.usd_per_hour


def view_of(entry: Entry | Shown, at: float) -> NodeView:
    """As a caller sees it."""
    condition = _condition(entry, at)
    preempted = condition is NodeCondition.GONE and entry.preempted_at < entry.gone_at
    fault = Fault(entry.fails_for) if condition is NodeCondition.FAILED and entry.fails_for else None
    return NodeView(
        handle=entry.handle,
        token=entry.token,
        condition=condition,
        reason="preempted" if preempted else _REASONS.get((entry.kind, condition, fault), ""),
        addresses=_ADDRESSES,
        billed_usd_per_hour=0.0 if condition is NodeCondition.QUEUED else entry.usd_per_hour,
        fault=fault,
    )


def _condition(entry: Entry | Shown, at: float) -> NodeCondition:
    if at >= min(entry.gone_at, entry.preempted_at):
        return NodeCondition.GONE
    if entry.kind == "disk":
        return NodeCondition.STOPPED
    if at < entry.queued_until:
        return NodeCondition.QUEUED
    if at < entry.boots_at:
        return NodeCondition.PENDING
    return NodeCondition.FAILED if entry.fails else NodeCondition.RUNNING
