"""Everything that a decision may look at: rows as they were read, and what providers said. Frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from shunter_planner import Block, Candidate, History, Plan, Unavailable
from shunter_planner.models.document import Known, Unknown
from shunter_planner.values import plan_from_json
from shunter_providers.contract import Capabilities, Offer, Scope
from shunter_schemas.job import JobSpec
from shunter_schemas.states import NodeState, Reason
from shunter_store.job.jobs import JobRow
from shunter_store.node.gang import GangFacts, Verdict
from shunter_store.node.ledger import NodeRow
from shunter_store.report.checkpoints import CheckpointRow
from shunter_store.report.metrics import ProgressRow
from shunter_store.storage.bundles import BundleRow

NO_HISTORY = History()
MEMORY = "steps"
"""The key of `JobRow.facts` under which steps keep what they leave to the next."""

_DOWN = frozenset({"stopped", "failed", "gone"})
_QUEUED: Final = "queued"

LONGEST_REST_S: Final = 600.0
"""A provider that asks for more is asked again sooner."""
LONGEST_BLOCK_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What one step leaves to the next. Times are seconds since the epoch."""

    ordered_generation: int = 0
    """The last generation that was set aside for a gang; 0: none. Each gang and each start has one of its own."""
    started: bool = False
    """Whether a whole gang of this job was ready once: from then on lost nodes are recovered, not planned anew."""
    not_before: float = 0.0
    """No new plan and no new start before this: back-off."""
    create_failures: int = 0
    """In a row, in this attempt."""
    silent_since: float | None = None
    """While stopping: since when no node answers."""
    short_since: float | None = None
    """For a job that ran: since when not all of its nodes can be had."""
    mute: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By node id, of those whose leases are over: when it was heard last, and when a step first found it so."""
    peer_lost_at: float | None = None
    """When a rank was found to have failed for the loss of another one, whose own end is not known yet."""
    asks: Sequence[int] = ()
    """Generations that ended since a rank asked to be started again, and that had saved nothing by then."""
    pausing: int = 0
    """The generation that was told to stop for a pause; 0: none."""
    moving: int = 0
    """The generation that was told to stop for a move; 0: none."""
    paused_at: float | None = None
    """Since when the job rests."""
    paused_s: float = 0.0
    """How long it rested before: limits of time do not count that."""
    asked: Mapping[str, float] = field(default_factory=dict)
    """By node id: when its provider was last asked to terminate it."""
    blocks: Sequence[Mapping[str, Any]] = ()
    """`planner.Block` as JSON, each with `until`."""
    avoid: Sequence[Mapping[str, Any]] = ()
    """Machines whose nodes were refused: `provider`, `machine`, `detail`, `until`."""
    cap_ahead: bool = False
    """Whether the last that was told of the job's cap is that it comes before the job's end."""
    most_micro_size: int | None = None
    """The largest micro-batch that is still tried: larger ones ran out of memory. None: any."""
    boot_failures: int = 0
    """Gangs in a row that did not come up with the job's own image, where no provider said why."""

    def as_json(self) -> dict[str, Any]:
        """What is stored."""
        return {
            "ordered_generation": self.ordered_generation,
            "started": self.started,
            "not_before": self.not_before,
            "create_failures": self.create_failures,
            "silent_since": self.silent_since,
            "short_since": self.short_since,
            "mute": {node_id: list(found) for node_id, found in self.mute.items()},
            "peer_lost_at": self.peer_lost_at,
            "asks": list(self.asks),
            "pausing": self.pausing,
            "moving": self.moving,
            "paused_at": self.paused_at,
            "paused_s": self.paused_s,
            "asked": dict(self.asked),
            "blocks": [dict(block) for block in self.blocks],
            "avoid": [dict(entry) for entry in self.avoid],
            "cap_ahead": self.cap_ahead,
            "most_micro_size": self.most_micro_size,
            "boot_failures": self.boot_failures,
        }

    def but(self, **changes: Any) -> dict[str, Any]:
        """The same with some things changed, as it is stored."""
        return replace(self, **changes).as_json()

    def rests_s(self, now: datetime) -> float:
        """How much of the back-off is left. A moment further away than any back-off is one that a clock left behind
        which was set back."""
        left_s = self.not_before - now.timestamp()
        return left_s if 0 < left_s <= LONGEST_REST_S else 0.0

    def standing_blocks(self, now: datetime) -> list[Block]:
        """What is still to be avoided."""
        return [
            Block(
                instance=entry["instance"],
                scope=Scope(entry["scope"]),
                reason=Reason(entry["reason"]),
                detail=entry["detail"],
                instance_type=entry.get("instance_type", ""),
                region=entry.get("region", ""),
            )
            for entry in self.blocks
            if 0 < entry["until"] - now.timestamp() <= LONGEST_BLOCK_S
        ]


def memory_of(job: JobRow) -> Memory:
    """What earlier steps of this job left; keys of a newer version are skipped."""
    stored = job.facts.get(MEMORY) or {}
    known = {name: value for name, value in stored.items() if name in Memory.__dataclass_fields__}
    return Memory(**known)


@dataclass(frozen=True, slots=True)
class Market:
    """What a plan chooses from."""

    instances: Sequence[str] = ()
    candidates: Sequence[Candidate] = ()
    unavailable: Sequence[Unavailable] = ()
    free: Mapping[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    """By instance and instance type of a shared host: the slots that nobody holds."""
    ahead: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By resource (`INSTANCE/KIND`): jobs that wait for slots of it and come first."""
    holders: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By resource: jobs that hold slots of it."""
    refused: Sequence[Block] = ()
    """What other jobs found refused for want of credentials or money, and nobody asks again for a while."""


@dataclass(frozen=True, slots=True)
class Requoted:
    """A second look at the offer of a plan."""

    offer: Offer | None
    """None: it is not offered any more."""


def resource_name(instance: str, slot_kind: str) -> str:
    """What jobs wait in line for: the slots of one kind of one shared host."""
    return f"{instance}/{slot_kind}"


@dataclass(frozen=True, slots=True)
class View:
    """One job as a step sees it."""

    job: JobRow
    document: JobSpec
    nodes: Sequence[NodeRow]
    """Rows of the ledger that are not closed."""
    gang: GangFacts
    verdict: Verdict
    capabilities: Mapping[str, Capabilities] = field(default_factory=dict)
    """By instance, of those whose plugin loads."""
    accounts: Mapping[str, str] = field(default_factory=dict)
    """By instance: the account of its credentials, where it is known."""
    market: Market = Market()
    checkpoint: CheckpointRow | None = None
    bundles: Mapping[str, BundleRow] = field(default_factory=dict)
    cost_usd: float = 0.0
    unreachable_after_s: float = 60.0
    stop_grace_s: float = 30.0
    """For ranks that are stopped, from SIGTERM to SIGKILL."""
    model: Known | Unknown | None = None
    """What is trained, where a plan is to be made."""
    history: History = NO_HISTORY
    """What past jobs measured, where plans are corrected by it."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """By node id: why a node that the core brings up itself was not accepted."""
    progress: ProgressRow | None = None
    """The newest report of a running job that has a budget."""
    requoted: Requoted | None = None
    """What the plan's offer is now, where nodes of it are about to be made. None: it could not be asked for."""
    price_tolerance: float = 0.0
    """By this share a price may have risen since the plan."""

    @property
    def memory(self) -> Memory:
        """What earlier steps left."""
        return memory_of(self.job)

    @property
    def plan(self) -> Plan:
        """The plan of this attempt; only where there is one."""
        assert self.job.plan is not None, "a job that left `queued` has a plan"
        return plan_from_json(self.job.plan)

    @property
    def members(self) -> list[NodeRow]:
        """Nodes that are not on their way out."""
        return [node for node in self.nodes if node.state is not NodeState.RELEASING]

    @property
    def lost(self) -> list[NodeRow]:
        """Members of which the provider says that they do not run."""
        return [node for node in self.members if is_down(node)]

    def capabilities_of(self, node: NodeRow) -> Capabilities:
        """What the node's plugin declares; cautious defaults where it does not load any more."""
        return self.capabilities.get(node.instance) or Capabilities()


def is_queued(node: NodeRow) -> bool:
    """Whether it waits for capacity at its provider: it is not booting, and costs nothing."""
    return node.condition == _QUEUED


def is_down(node: NodeRow) -> bool:
    """Whether the provider says that it does not run. Silence of the node itself says nothing."""
    return node.condition in _DOWN


def seconds_until(moment: datetime | None, now: datetime) -> float | None:
    """How long until then; at least 0."""
    return None if moment is None else max(0.0, (moment - now).total_seconds())


def soonest(*delays_s: float | None) -> float | None:
    """The shortest of the delays that are given."""
    return min((delay for delay in delays_s if delay is not None), default=None)


def after(moment: datetime, delay_s: float) -> datetime:
    """`delay_s` later."""
    return moment + timedelta(seconds=delay_s)
