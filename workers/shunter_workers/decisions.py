"""What a step decides: rows to write, at most one call to a provider, and how the job moves on.

Plain values, so that a decision can be compared in a test. `applying` writes them, `acting` makes the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shunter_planner import Plan
from shunter_providers.contract import NodeView, ProviderError
from shunter_schemas.node_sync import Assignment, Phase
from shunter_schemas.states import Reason
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change
from shunter_store.node.ledger import NodeRow

Memory = Mapping[str, Any]
"""What one step leaves to the next (`view.Memory` names the keys)."""

# --- rows of the ledger ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """One node that shall exist: its rank in the gang, and its slots where hosts are shared."""

    rank: int
    slot_indices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Intend:
    """New rows, and their slots."""

    plan: Plan
    places: Sequence[Place]
    generation: int


@dataclass(frozen=True, slots=True)
class BeginCreate:
    """The create call is about to be made; until `deadline_at` the node may still appear."""

    node_id: str
    deadline_at: datetime
    usd_per_hour: float | None = None
    """What its offer costs by now; None: as planned."""


@dataclass(frozen=True, slots=True)
class Run:
    """Every node of the gang shall run its part of one generation."""

    orders: Sequence[tuple[str, Assignment]]
    generation: int
    stop_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Tell:
    """Nodes shall stop, or end."""

    node_ids: Sequence[str]
    phase: Phase
    generation: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """When nodes have to stop by themselves; None: never."""

    node_ids: Sequence[str]
    stop_at: datetime | None


@dataclass(frozen=True, slots=True)
class Renumber:
    """Nodes that stay get other ranks in a smaller gang: node id and rank, by rank."""

    ranks: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Release:
    """Rows that shall be closed."""

    node_ids: Sequence[str]
    reason: str


@dataclass(frozen=True, slots=True)
class MarkUnknown:
    """A create call ended in doubt."""

    node_id: str
    detail: str


@dataclass(frozen=True, slots=True)
class RecordSeen:
    """What a look at a node showed that no listing has shown yet."""

    node_id: str
    condition: str
    reason: str
    addresses: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WakeWaiting:
    """Jobs that wait for slots of this kind shall look again, the first of them first."""

    instance: str
    slot_kind: str
    slots: int


@dataclass(frozen=True, slots=True)
class RecordHandle:
    """Never fenced: the node exists, whoever holds the job by now."""

    node_id: str
    handle: str


@dataclass(frozen=True, slots=True)
class Close:
    """Never fenced: proof of absence stays true, whoever holds the job by now."""

    node: NodeRow
    proof: Mapping[str, Any]


Fenced = Intend | BeginCreate | Run | Tell | Limit | Renumber | Release | MarkUnknown | RecordSeen | WakeWaiting
Unfenced = RecordHandle | Close
Write = Fenced | Unfenced

# --- calls to a provider -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """Make the node of this row."""

    node: NodeRow
    ends_in_s: float | None = None
    """After this its provider shall end it by itself, where it can; None: nothing bounds the life of the job."""


@dataclass(frozen=True, slots=True)
class Search:
    """Look for the node of a row without a handle by its token."""

    node: NodeRow


@dataclass(frozen=True, slots=True)
class Terminate:
    """Get rid of the node."""

    node: NodeRow


@dataclass(frozen=True, slots=True)
class Prove:
    """Ask for a node that listings no longer show."""

    node: NodeRow


@dataclass(frozen=True, slots=True)
class Look:
    """Ask where a node is that no listing has shown yet."""

    node: NodeRow


Action = Create | Search | Terminate | Prove | Look


@dataclass(frozen=True, slots=True)
class Created:
    handle: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found; None: the complete listing does not show the token."""

    view: NodeView | None


@dataclass(frozen=True, slots=True)
class Terminated:
    gone: bool


@dataclass(frozen=True, slots=True)
class Looked:
    """What `get` answered, and the account whose credentials asked."""

    view: NodeView
    account: str


Result = Created | Found | Terminated | Looked | ProviderError

# --- decisions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settle:
    """The step ends: everything here is written in one transaction, unfenced rows in one of their own before it."""

    change: Change = field(default_factory=Change)
    writes: Sequence[Write] = ()
    memory: Memory | None = None
    """None: as it was."""

    @property
    def only_waits(self) -> bool:
        """Whether nothing happens but the time of the next look."""
        change = self.change
        decided = change.trigger or change.set or change.events or change.moved
        return not (self.writes or decided or self.memory is not None)


@dataclass(frozen=True, slots=True)
class Act:
    """First `writes` are committed, then the call is made; its result decides the rest (`settling`)."""

    action: Action
    writes: Sequence[Fenced] = ()


Decision = Settle | Act


def wait(next_in_s: float | None = None) -> Settle:
    """Look again then; None: when woken."""
    return Settle(Change(next_in_s=next_in_s))


def stop(reason: Reason, message: str | None = None) -> Settle:
    """The job shall end for this reason."""
    return Settle(Change(trigger=Trigger.STOP, reason=reason, message=message, next_in_s=0.0))
