"""The provider contract: six verbs, frozen data in and out, one kind of error.

A plugin is a class that fulfils `Provider`, published as an entry point in the group `shunter.providers`. Each verb may
raise `ProviderError` and nothing else; none of them waits for a node to become ready; the core enforces time-outs.
Only the standard library is imported here, so that a plugin's tests need no more than this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

CONTRACT_VERSION = 1

HANDLE_VARIABLE = "SHUNTER_NODE_HANDLE"
"""Set it in the agent's environment where the handle is known then: the service tells twins apart by it."""


class Fault(StrEnum):
    """What went wrong, in words that the core knows; beside each, the one thing that the caller does next."""

    NO_CAPACITY = "no_capacity"  # try the next offer
    QUOTA = "quota"  # block the scope, try elsewhere
    AUTH = "auth"  # stop using the instance, tell the operator
    PAYMENT = "payment"  # stop using the instance, tell the operator
    RATE_LIMITED = "rate_limited"  # wait `retry_after_s`
    TRANSIENT = "transient"  # try again with back-off
    INVALID = "invalid"  # fail the job with the field
    NOT_FOUND = "not_found"  # the thing is absent
    CONFLICT = "conflict"  # search by token, then decide
    AMBIGUOUS = "ambiguous"  # something may exist: search by token before anything else


class Scope(StrEnum):
    """How far a fault reaches."""

    OFFER = "offer"
    ZONE = "zone"
    REGION = "region"
    ACCOUNT = "account"
    PROVIDER = "provider"


class ProviderError(Exception):
    """The only error that a plugin raises. `may_have_created` forces a search by token before any retry."""

    def __init__(
        self,
        fault: Fault,
        detail: str,
        *,
        scope: Scope = Scope.PROVIDER,
        retry_after_s: float | None = None,
        may_have_created: bool = False,
    ) -> None:
        super().__init__(f"{fault}: {detail}")
        self.fault = fault
        self.detail = detail
        self.scope = scope
        self.retry_after_s = retry_after_s
        self.may_have_created = may_have_created


class Availability(StrEnum):
    """What the provider says of an offer at the moment."""

    AVAILABLE = "available"
    UNKNOWN = "unknown"
    NO_QUOTA = "no_quota"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Price:
    """Parts of a price in USD. `billed` is false for one's own hardware, where every part is 0."""

    gpu_usd_per_hour: float = 0.0
    disk_usd_per_hour: float = 0.0
    setup_usd: float = 0.0
    billed: bool = True
    as_of: str | None = None
    live: bool = True

    @property
    def usd_per_hour(self) -> float:
        """All that accrues by time."""
        return self.gpu_usd_per_hour + self.disk_usd_per_hour


@dataclass(frozen=True, slots=True)
class Offer:
    """One kind of node that can be had now."""

    instance_type: str
    region: str
    jurisdiction: str
    price: Price
    gpu_model: str | None = None
    gpus: int = 0
    gpu_memory_gib: float = 0.0
    cpus: int = 0
    memory_gib: float = 0.0
    disk_gib: float = 0.0
    capacity: str = "on_demand"
    kind: str = "vm"
    availability: Availability = Availability.UNKNOWN
    count: int | None = None
    """How many nodes of it can be had at once; None: unknown."""
    free: int | None = None
    """For shared hosts: GPUs (or CPU slots when `gpus` is 0) that are free at this moment."""
    cpu_slots: int = 0
    """CPU ranks that this node takes, for CPU jobs; 0: does not take any."""
    slot_indices: Sequence[int] = ()
    """For shared hosts: the GPUs (or CPU slots) that this offer is made of. Empty: 0 up to `gpus` (or `cpu_slots`)."""
    interconnect: str = "any"
    fabric: str | None = None


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """What the planner looks for; a plugin may ignore any part, the planner filters again."""

    gpu_models: Sequence[str] = ()
    regions: Sequence[str] = ()
    capacity: str = "on_demand"


@dataclass(frozen=True, slots=True)
class Launch:
    """Starts the agent: files to put into one folder, and the command to run there.

    `argv[0]` may be `{python}`, which the plugin or node replaces by a Python (3.8 or newer) of the node.
    """

    argv: Sequence[str]
    files: Mapping[str, bytes]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Intent:
    """One node that shall exist. Its row in the ledger was committed before `create` is called."""

    token: str
    tags: Mapping[str, str]
    offer: Offer
    launch: Launch
    rank: int
    gang_size: int
    slots: int = 0
    """Ranks of the job on this node: GPUs, or CPU slots where the offer has no GPU."""
    slot_indices: Sequence[int] = ()
    """Which GPUs (or CPU slots) of a shared host were reserved for this node."""
    image: str | None = None
    public_key: str | None = None
    host_key: str | None = None
    user_data: str | None = None
    expires_at: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    avoid: Sequence[str] = ()
    """Machines (`NodeView.addresses["machine"]`) whose nodes this job refused: choose others, or say `NO_CAPACITY`."""


class NodeCondition(StrEnum):
    """What the provider says of a node."""

    QUEUED = "queued"
    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as its provider shows it."""

    handle: str
    token: str | None
    condition: NodeCondition
    reason: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)
    billed_usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the credentials are."""

    account: str
    limits: Mapping[str, Any] = field(default_factory=dict)


class SelfStop(StrEnum):
    """What happens to the bill when a node stops itself."""

    ENDS_BILLING = "ends_billing"
    STOPS_COMPUTE = "stops_compute"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a plugin declares; the core asks, it never tries."""

    contract_version: int = CONTRACT_VERSION
    bootstrap: str = "launch"
    idempotency: str = "search_only"
    self_stop: SelfStop = SelfStop.NONE
    visibility_delay_s: float = 0.0
    verifies: bool = True
    """What nodes report of themselves is held against their offer; not where machines are made up (`simulated`)."""
    readiness_deadline_s: float = 600.0
    scan_interval_s: float = 15.0
    create_timeout_s: float = 60.0
    bills: bool = True
    shares_file_system: bool = False
    """Nodes see the service's data directory (`local`)."""
    shared_hosts: bool = False
    """Several jobs may sit on one host: the core reserves slots (unique rows) before `create`."""
    lease_s: float | None = 7200.0
    """Default dead-man lease of its nodes; None: no expiry (nodes that bill nothing)."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A configured instance of a plugin: `[providers.NAME] plugin = "…"`."""

    name: str
    plugin: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str = ""
    """A folder that the instance may use for its own state."""


@runtime_checkable
class Provider(Protocol):
    """What a plugin fulfils. One object per configured instance, made once per process.

    The class takes an `Instance`, checks its settings without I/O, and raises `INVALID`, naming the setting.
    """

    capabilities: ClassVar[Capabilities]

    async def whoami(self) -> Identity:
        """Prove the credentials and name the account they belong to."""
        ...

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """Everything that can be had now and that the query does not exclude."""
        ...

    async def create(self, intent: Intent) -> str:
        """Begin to make the node and return its handle; never wait for it to be ready."""
        ...

    async def get(self, handle: str) -> NodeView:
        """The node as it is now; a handle that does not exist is `GONE`, not an error."""
        ...

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        """Everything of this deployment that exists or can bill, complete, or an error."""
        ...

    async def terminate(self, handle: str) -> bool:
        """Get rid of the node and what is left of it. True: the provider says it is gone; False: not yet.

        A handle that does not exist is True. Safe to repeat.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
